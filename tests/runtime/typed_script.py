"""A user's script with every way into gencli from Python, for the type checker. It is never run."""

from contextlib import closing
from dataclasses import dataclass

from gencli import LLM, Completion, Error, Event, Finish, GencliError, Reading, Sample, SamplingParams, Token


@dataclass
class Person:
    name: str
    age: int


def print_event(event: Event) -> None:
    if isinstance(event, Token):
        print(event.request, event.text)
    elif isinstance(event, Reading):
        print(event.done / event.total)
    elif isinstance(event, Finish):
        print(event.reason, event.completion_tokens)
    elif isinstance(event, Error):
        print(event.message)


def main() -> None:
    params = SamplingParams(temperature=0.7, top_p=0.9, chain="min_p=0.05", stop=["\n"], seed=1)
    with LLM("tiny", plugins=["own.py:Stage"], dtype="float32") as llm:
        one: Completion = llm.generate("Once", params, max_tokens=8)
        many: list[Completion] = llm.generate(["Once", "Twice"], [params, params.replaced(n=2)])
        samples: tuple[Sample, ...] = one.samples + many[0].samples
        print(one.text.upper(), one.finish_reason, samples[0].completion_tokens)
        print(sum(one.token_ids), one.prompt_token_ids[0], samples[0].token_ids[:1], one.trace[0]["id"])
        print(llm.generate(["Once"], progress=False)[0].text, llm.score("Once", progress=True))
        conversation = [{"role": "user", "content": "Hello"}]
        answer: Completion = llm.chat(conversation, params)
        answers: list[Completion] = llm.chat([conversation, conversation])
        print(answer.text, len(answers))
        with closing(llm.stream(("Once", "Twice"), params)) as events:
            for event in events:
                print_event(event)
        try:
            print(llm.generate("Nora is 41.\n", json_schema=Person).parsed)
        except GencliError as error:
            print(error.message, error.hint)
        print(llm.notices[0], llm.tokenizer.encode("Once")[0])


if __name__ == "__main__":
    main()

"""Generate from Python: two prompts in one batch."""

from gencli import LLM, SamplingParams

params = SamplingParams(temperature=0.7, top_p=0.9, max_tokens=48, seed=1)
with LLM("tiny") as llm:
    for out in llm.generate(["Once upon a time", "The brave fox"], params):
        print(f"{out.prompt}{out.text} [{out.finish_reason}]")

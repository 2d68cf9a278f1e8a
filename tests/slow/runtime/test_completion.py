"""A token has the log-probability that it was drawn with when a later request reads it as its prompt."""

import pytest

from gencli import LLM

BOTH = 2e-5  # in float32: sums in another order, of logits up to 30


@pytest.mark.parametrize(
    "options", [{"backend": "native"}, {"backend": "native", "invariant": "on"}, {"backend": "transformers"}]
)
def test_log_probabilities_of_decoding_are_those_of_reading(options):
    llm = LLM("tiny-draft", dtype="float32", max_batch=2, **options)
    ids = llm.tokenizer.encode("Once upon a time")
    prompts = [ids, ids[:1]]
    drawn = llm.generate_from_ids(prompts, seed=1, max_tokens=30, logprobs=3)
    answers = [[entry.chosen.id for entry in one.logprobs] for one in drawn]
    assert min(map(len, answers)) > 5
    whole = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
    for cached in (False, True):  # the second time from the lane of the first
        read = llm.generate_from_ids(whole, max_tokens=1, prompt_logprobs=3)
        for prompt, one, other in zip(prompts, drawn, read, strict=True):
            entries = other.prompt_logprobs[len(prompt) :]
            assert [entry.chosen.id for entry in entries] == [entry.chosen.id for entry in one.logprobs]
            for place, (entry, before) in enumerate(zip(entries, one.logprobs, strict=True)):
                told = entry.chosen.logprob, *(top.logprob for top in entry.top)
                expected = before.chosen.logprob, *(top.logprob for top in before.top)
                assert told == pytest.approx(expected, abs=BOTH), (place, cached)
                assert entry.rank == before.rank, (place, cached)

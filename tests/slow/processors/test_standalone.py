"""Chains without an engine: the same draws, and the same texts in transformers' own loop."""

import torch

from processors import Chain
from tests.processors.test_standalone import CHAIN, llm, made, model


def test_generate_writes_what_the_engine_does(llm, model):
    prompts = ["Once", "The brave dog"]
    ids = [llm.tokenizer.encode(prompt) for prompt in prompts]
    for one, prompt in zip(ids, prompts, strict=True):
        given = torch.tensor([one])
        found = model.generate(given, do_sample=False, max_new_tokens=24, logits_processor=[made(llm)])
        wanted = llm.generate(prompt, chain=CHAIN + " | temperature=0", max_tokens=24)
        assert llm.tokenizer.decode(found[0, len(one) :].tolist()) == wanted.text


def test_beams_that_change_places_are_followed(llm, model):
    given = torch.tensor([llm.tokenizer.encode("Once")])
    kept = made(llm, "repetition=1.3")
    found = model.generate(given, num_beams=3, max_new_tokens=12, logits_processor=[kept])
    fresh = [lambda ids, scores: made(llm, "repetition=1.3")(ids, scores)]
    assert torch.equal(found, model.generate(given, num_beams=3, max_new_tokens=12, logits_processor=fresh))
    assert kept.chain == Chain.parse("repetition=1.3")

"""Chains without an engine: the same draws, and the same texts in transformers' own loop."""

import torch

from tests.processors.test_standalone import CHAIN, llm, made, model


def test_generate_writes_what_the_engine_does(llm, model):
    prompts = ["Once", "The brave dog"]
    ids = [llm.tokenizer.encode(prompt) for prompt in prompts]
    for one, prompt in zip(ids, prompts, strict=True):
        given = torch.tensor([one])
        found = model.generate(given, do_sample=False, max_new_tokens=24, logits_processor=[made(llm)])
        wanted = llm.generate(prompt, chain=CHAIN + " | temperature=0", max_tokens=24)
        assert llm.tokenizer.decode(found[0, len(one) :].tolist()) == wanted.text

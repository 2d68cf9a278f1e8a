"""Beam search gives the sequences and scores of transformers, where the two agree by definition.

Entry by entry in docs/beams.md: our bound is that of early_stopping="never", our `early_stopping` that of
true. A stage works on logits here and on logprobs there, which is one and the same for a model whose
logits are logprobs.
"""

import pytest
import torch

from tests.engine.beams.test_transformers import assert_same, cases, model_of, ours, theirs


def check_sequences(kind, count):
    model, wanted = model_of(kind), list(cases())[:count]
    found = ours(model, wanted)
    assert_same(found, [theirs(model, *case) for case in wanted])
    assert len({len(ids) for beams in found for ids, _ in beams}) > 5, kind  # texts end in many places


def check_stages(kind):
    model, wanted = model_of(kind, normalised=True), list(cases())[:18]
    for chain, options in (
        ("repetition:penalty=1.3,exempt=[]", {"repetition_penalty": 1.3}),
        ("min_tokens=6", {"min_new_tokens": 6}),
    ):
        expected = [theirs(model, *case, **options, renormalize_logits=True) for case in wanted]
        assert_same(ours(model, wanted, chain), expected)


def check_scores(kind):
    model, wanted = model_of(kind), list(cases(early=(False,)))[:6]
    for (prompt, beams), found in zip(wanted, ours(model, wanted), strict=True):
        for ids, score in found:
            with torch.inference_mode():
                logprobs = model(torch.tensor([[*prompt, *ids]])).logits[0].log_softmax(-1)
            total = sum(logprobs[len(prompt) - 1 + i, token].item() for i, token in enumerate(ids))
            assert score == pytest.approx(total / len(ids) ** beams.length_penalty, abs=1e-4), kind


def test_sequences_and_scores_are_those_of_transformers():
    check_sequences("llama", 18)  # each setting once


def test_penalties_and_minimal_lengths_are_those_of_transformers():
    check_stages("gpt2")


def test_scores_are_those_of_a_fresh_prefill():
    for kind in ("gemma3", "falcon_h1"):
        check_scores(kind)

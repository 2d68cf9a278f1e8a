"""kgw adds the bias where transformers does, bit for bit, and revives no masked token."""

import torch

from processors.stages.watermarks import KgwParams
from processors.testing.checks import Bench, Subject, Text, toy_env


def test_a_context_that_is_too_short_changes_nothing():
    bench = Bench(Subject.of(_stage()))
    bench.admit(0, KgwParams(1, width=3), Text((4,), (5,), ()))
    logits = torch.randn(2, toy_env().vocab_size)
    out = bench.apply(logits, [0], [(6,)])
    assert torch.equal(out[0], logits[0])
    assert not torch.equal(out[1], logits[1]), "with its draft the context is long enough"


def test_only_the_declared_vocabulary_is_divided():
    bench = Bench(Subject.of(_stage()))
    bench.admit(0, KgwParams(1, vocab=100, ratio=0.5), Text((4,), (), ()))
    changed = (bench.apply(torch.zeros(1, toy_env().vocab_size), [0])[0] != 0).nonzero().flatten()
    assert len(changed) == 50
    assert int(changed.max()) < 100


def _stage():
    from processors.stages.watermarks import Kgw

    return Kgw

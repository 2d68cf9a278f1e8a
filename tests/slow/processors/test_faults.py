"""NaN and +inf among the logits are an error of their row, wherever they stand and whatever masks them."""

from itertools import product

import torch

from processors.base import Admission, Env
from processors.catalog import BUILTIN
from processors.history import History
from processors.registry import builtin_registry
from processors.rows import Rows
from processors.testing import EXAMPLES, ToyVocabulary
from tests.processors.test_faults import INF, NAN


def test_a_stage_that_keeps_faults_does():
    """Nobody looks for faults before these stages, so one that masked a fault would hide it."""
    env = Env(ToyVocabulary().vocab_size, ToyVocabulary())
    keeping = [spec for spec in BUILTIN if builtin_registry().load(spec.name).keeps_faults]
    for spec, fault in product(keeping, (NAN, INF)):
        for params in EXAMPLES[spec.params]:
            history, stage = History(), builtin_registry().load(spec.name)(env)
            history.admit(0, tuple(range(20)))
            stage.admit(0, params, Admission(tuple(range(20))))
            for place in (0, 7, env.vocab_size - 1):
                logits = torch.linspace(0, 5, env.vocab_size)[None].clone()
                logits[0, place] = fault
                largest = float(stage.apply(logits, Rows.build(history, [0])).amax())
                assert not largest < INF, (spec.name, params, fault, place)

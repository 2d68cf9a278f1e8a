"""Every golden case of another system gives what it says there, or differs by a documented decision."""

import torch

from processors.errors import ParamError
from tests.processors.vectors import CASES
from tests.processors.vectors.run import processed


def is_expected(case):
    try:
        logits = processed(case)
    except ParamError:
        return False
    if case.kept is not None:
        return tuple(torch.nonzero(logits > -torch.inf).flatten().tolist()) == case.kept
    found, expected = (logits.softmax(0), case.p) if case.p is not None else (logits, case.logits_after)
    return torch.allclose(
        found, torch.tensor(expected, dtype=torch.float32), rtol=case.within, atol=case.within
    )


def test_each_case_is_as_its_source_says_or_differs_by_decision():
    wrong = [str(case) for case in CASES if is_expected(case) is bool(case.differs)]
    assert wrong == []

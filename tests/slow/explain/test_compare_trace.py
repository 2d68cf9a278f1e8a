"""A chain on the logits of a trace: the same as beside a model where it is exact; no other file is obeyed."""

import pytest

from gencli.errors import GencliError, GenerationError
from tests.explain.test_compare_trace import compared, lines, trace

HEADS = {
    "no chain": {"chain": None},
    "an unknown stage": {"chain": [{"nothing": {}}]},
    "stages of another kind": {"chain": [3]},
    "a wrong value": {"chain": [{"top_k": {"k": "x"}}]},
    "a grammar without texts": {"chain": [{"grammar": {"text": "a", "kind": "regex"}}]},
    "too many stages": {"chain": [{"top_k": {"k": 3}}] * 10_000},
    "an unknown draw": {"draw": "dice"},
    "a draw that is a list": {"draw": []},
    "no prompt": {"prompt_ids": None},
    "ids beyond the vocabulary": {"prompt_ids": [10**9]},
    "ids that are texts": {"eos_ids": ["a"]},
}


def test_a_wrong_head_or_record_is_refused(trace):
    for change in HEADS.values():
        head, *others = lines(trace(20))
        with pytest.raises(GenerationError):
            compared([head | change, *others])

    for change in RECORDS.values():
        head, first, second, *others = lines(trace(20))
        if "vocab" in change:
            change = {"logits": second["logits"] | change}
        with pytest.raises(GencliError):
            compared([head, first, second | change, *others])


RECORDS = {
    "an id beyond the vocabulary": {"id": 10**6},
    "a negative id": {"id": -1},
    "no logits": {"logits": None},
    "a stage that is not of the chain": {"decided_by": ["none"]},
    "stages of another kind": {"decided_by": [{"a": 1}]},
    "logits of another form": {"logits": {"ids": "?"}},
    "a vast vocabulary": {"vocab": 1 << 23},
    "another vocabulary": {"vocab": 259},
}

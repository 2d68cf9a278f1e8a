"""Two stages of the registry act together: both leave their mark, and the result is that of the twins."""

from itertools import chain, pairwise

from processors.catalog import BUILTIN
from tests.helpers.stage_walk import act_together

NAMES = [spec.name for spec in BUILTIN]


HALF = len(NAMES) // 2


def apart(pairs):
    return [pair for pair in pairs if not act_together(*pair)]


def test_each_stage_acts_beside_the_next_one_and_one_of_another_phase():
    assert apart(chain(pairwise(NAMES), zip(NAMES, NAMES[HALF:], strict=False))) == []

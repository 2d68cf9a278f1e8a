"""Two stages of the registry act together: both leave their mark, and the result is that of the twins."""

from tests.helpers.stage_walk import STAGE_PAIRS
from tests.slow.processors.stages.test_stage_pairs import apart


def test_any_two_stages_act_together():
    assert apart(STAGE_PAIRS) == []

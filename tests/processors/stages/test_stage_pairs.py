"""Any two stages of the registry act together: both leave their mark, and the result is that of the twins."""

import pytest

from tests.helpers.stage_walk import STAGE_PAIRS, act_together


@pytest.mark.parametrize(("first", "second"), STAGE_PAIRS, ids=lambda name: name)
def test_both_stages_act_and_the_result_is_that_of_the_twins(first, second):
    assert act_together(first, second), f"{first} and {second} never act together"

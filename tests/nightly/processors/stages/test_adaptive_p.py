"""adaptive_p, entry 21."""

from tests.slow.processors.stages.test_adaptive_p import check_mean


def test_the_mean_probability_moves_to_another_target():
    check_mean(0.5)

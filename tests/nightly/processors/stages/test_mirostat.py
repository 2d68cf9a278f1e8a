"""mirostat, entry 20."""

from itertools import product

import pytest

from tests.slow.processors.stages.test_mirostat import mean_surprise


def test_the_mean_surprise_is_at_any_target_in_both_versions():
    for version, tau in product([1, 2], [1.5, 3.0, 5.0]):
        assert mean_surprise(version, tau) == pytest.approx(tau, rel=0.05), (version, tau)

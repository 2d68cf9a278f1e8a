"""adaptive_p, entry 21."""

import math

import pytest

INF = math.inf


def test_the_most_likely_token_is_the_one_nearest_to_the_target(run):
    logits = run("adaptive_p", {"target": 0.2}, [math.log(p) for p in (0.6, 0.2, 0.15, 0.05)])
    assert logits == pytest.approx(
        [5 - 10 * u * u / (1 + u) for u in (abs(p - 0.2) / 0.3 for p in (0.6, 0.2, 0.15, 0.05))], abs=1e-5
    )
    assert max(logits) == logits[1]

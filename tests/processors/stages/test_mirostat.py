"""mirostat, entry 20."""

import math
from itertools import product

import pytest
import torch

from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.reference import REFERENCE, View
from processors.registry import builtin_registry
from processors.rows import Rows
from processors.sampler import Sampler

INF = math.inf


def test_the_first_of_the_most_likely_stays_where_all_surprise_too_much(kept):
    for version in [1, 2]:
        assert kept("mirostat", {"version": version, "tau": 0}, [1.0, 3.0, -INF, 3.0]) == [1], version


def test_of_equal_tokens_the_formula_of_version_1_keeps_one_or_all(kept):
    for tau, count in [(2, 1), (3, 40)]:
        twin = REFERENCE["mirostat"]([1.5] * 40, builtin_registry().load("mirostat").Params(1, tau), View())
        assert kept("mirostat", {"version": 1, "tau": tau}, [1.5] * 40) == list(range(count)), tau
        assert sum(x > -INF for x in twin) == count, tau


def mean_surprise(version, tau):
    """Of drawn tokens under the truncated distribution, over rows that are peaked and flat in turn."""
    noise = torch.randn(64, 2000, generator=torch.Generator().manual_seed(1))
    heat = torch.linspace(0.5, 4, 64)[torch.randperm(64, generator=torch.Generator().manual_seed(2)), None]
    rows_of = heat * noise
    history, pipeline, sampler = History(), Pipeline(Env(2000)), Sampler()
    history.admit(0, (1,), seed=7)
    pipeline.admit(0, Chain.parse(f"mirostat:version={version},tau={tau}"), Admission((1,)))
    sampler.admit(0, "gumbel")
    surprise = []
    for step in range(2000):
        rows = Rows.build(history, [0])
        logits = pipeline(rows_of[step % 64][None], rows)
        token = int(sampler(logits, rows))
        surprise.append(-float(logits.log_softmax(1)[0, token]) / math.log(2))
        history.append([0], [[token]])
        pipeline.commit(0, [token])
    return sum(surprise[200:]) / 1800


def test_the_mean_surprise_of_drawn_tokens_is_at_its_target():
    assert mean_surprise(2, 3.0) == pytest.approx(3.0, rel=0.05)


def test_the_mean_surprise_is_at_any_target_in_both_versions():
    for version, tau in product([1, 2], [1.5, 3.0, 5.0]):
        assert mean_surprise(version, tau) == pytest.approx(tau, rel=0.05), (version, tau)

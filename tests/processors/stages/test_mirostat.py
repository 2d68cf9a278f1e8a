"""mirostat, entry 20."""

import math

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


def test_a_row_with_one_token_or_none_is_left_as_it_is(run):
    for version in [1, 2]:
        params = {"version": version}
        assert run("mirostat", params, [-INF, 2.5, -INF]) == [-INF, 2.5, -INF], version
        assert run("mirostat", params, [-INF] * 3) == [-INF] * 3, version


def test_a_wide_row_is_that_of_the_reference(run):
    for scale in [0.01, 1.0, 8.0]:
        for version, tau in [(1, 3), (1, 7), (2, 3), (2, 7.6)]:
            logits = (scale * torch.randn(40_000, generator=torch.Generator().manual_seed(4))).tolist()
            logits[7] = -INF
            logits = torch.tensor(logits).tolist()
            params = {"version": version, "tau": tau}
            twin = REFERENCE["mirostat"](logits, builtin_registry().load("mirostat").Params(**params), View())
            assert run("mirostat", params, logits) == twin, (scale, version)


def test_the_mean_surprise_of_drawn_tokens_is_at_its_target():
    """Over rows that are peaked and flat in turn, under the truncated distribution that was drawn from."""
    for version in [1, 2]:
        for tau in [1.5, 3.0, 5.0]:
            noise = torch.randn(64, 2000, generator=torch.Generator().manual_seed(1))
            heat = torch.linspace(0.5, 4, 64)[
                torch.randperm(64, generator=torch.Generator().manual_seed(2)), None
            ]
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
            assert sum(surprise[200:]) / 1800 == pytest.approx(tau, rel=0.05), (version, tau)

"""mirostat, entry 20."""

import math

import pytest
import torch

from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import Sampler


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

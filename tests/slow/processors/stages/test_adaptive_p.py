"""adaptive_p, entry 21."""

import torch

from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import Sampler


def test_the_mean_probability_of_drawn_tokens_moves_to_its_target():
    """Behind a truncation; rows without a token near the target keep the mean from reaching it."""
    check_mean(0.2)


def check_mean(target):
    plain, adapted = (mean_probability(f"min_p=0.05{more}") for more in ("", f" | adaptive_p={target}"))
    assert abs(adapted - target) < 0.08
    assert abs(adapted - target) < abs(plain - target) / 2


def mean_probability(chain):
    """The mean over 1500 drawn tokens of their probability behind the truncation."""
    noise = torch.randn(64, 200, generator=torch.Generator().manual_seed(1))
    heat = torch.linspace(1.5, 5, 64)[torch.randperm(64, generator=torch.Generator().manual_seed(2)), None]
    history, pipeline, sampler = History(), Pipeline(Env(200)), Sampler()
    history.admit(0, (1,), seed=7)
    pipeline.admit(0, Chain.parse(chain), Admission((1,)))
    sampler.admit(0, "gumbel")
    found, seen = [], {}
    for step in range(1500):
        rows = Rows.build(history, [0])
        row = (heat * noise)[step % 64][None]
        logits = pipeline(row, rows, lambda stage, now: seen.update({stage: now.clone()}))
        token = int(sampler(logits, rows))
        found.append(float(seen["min_p"].softmax(1)[0, token]))
        history.append([0], [[token]])
        pipeline.commit(0, [token])
    return sum(found) / len(found)

"""xtc, entry 17; cases of peers are in vectors."""

import math

import torch

from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rng import Stream, row_keys, uniform
from processors.rows import Rows
from processors.sampler import Sampler
from tests.processors.stages.test_gate import DOWN, INF

PLACES = 2000


def rolled(chain, logits, places=PLACES, seed=5):
    """Processed logits [places, V] of the output positions 0 to places - 1, and their rows."""
    pipeline, history = Pipeline(Env(len(logits))), History()
    history.admit(0, (1,), seed=seed)
    pipeline.admit(0, Chain.parse(chain), Admission((1,)))
    rows = Rows.build(history, [0], [[0] * (places - 1)])
    return pipeline(torch.tensor([logits] * places), rows), rows


def test_it_acts_as_often_as_asked():
    for probability in [0.1, 0.5, 0.9]:
        logits, _ = rolled(f"xtc:probability={probability}", DOWN)
        rate = (logits[:, 0] == -INF).double().mean().item()
        assert abs(rate - probability) < 4 * math.sqrt(probability * (1 - probability) / PLACES), probability


def test_its_rolls_depend_on_seed_and_position_alone():
    logits, rows = rolled("xtc=0.5", DOWN)
    keys = row_keys(rows.seeds, rows.positions, Stream.XTC)
    assert torch.equal(logits[:, 0] == -INF, uniform(keys, torch.zeros_like(keys)) < 0.5)
    wider, _ = rolled("top_k=9 | xtc:probability=0.5,threshold=0.2", [*DOWN, -3.0])
    assert torch.equal(wider[:, 0] == -INF, logits[:, 0] == -INF)
    assert not torch.equal(rolled("xtc=0.5", DOWN, seed=6)[0], logits)


def test_where_it_does_not_act_the_draw_is_the_same():
    logits, rows = rolled("xtc=0.5", DOWN)
    sampler = Sampler()
    sampler.admit(0, "gumbel")
    plain = sampler(torch.tensor([DOWN] * PLACES), rows)
    acted = logits[:, 0] == -INF
    assert torch.equal(sampler(logits, rows)[~acted], plain[~acted])

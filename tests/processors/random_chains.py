"""Random chains over logits of all kinds, and what compares a fast choice with the stages and the draw."""

import math
import random

import torch

from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import Sampler

__all__ = ["KINDS", "PARTS", "admitted", "compare_choice", "peaked", "random_cases"]

INF = math.inf
WIDTHS = (40, 64, 300, 1000, 4096, 4097, 8200, 50_257)
PARTS = (
    ("", "", "repetition=1.3", "suppress=[1,2,3]", "frequency=0.5"),
    ("", *(f"temperature={t}" for t in (0.0001, 0.01, 0.5, 0.8, 1.3, 50))),
    ("", "", "min_p=0.05", "min_p=0.9", "min_p=1.0", "min_p=1e-30", "min_p:p=0.1,keep=3"),
    ("", "", *(f"top_k={k}" for k in (1, 50, 63, 64, 500, 999)), "top_k:k=40,ties=keep", "top_k:k=2,keep=5"),
    ("", "top_p=0.9", "top_p=0.5", "top_p=0.0", "top_p=1e-9", "top_p=0.999999", "top_p:p=0.2,keep=7",
     "top_p:p=0.9,boundary=exclusive"),
)  # fmt: skip


def masked(logits, share, generator):
    return logits.masked_fill(torch.rand(logits.shape, generator=generator) < share, -INF)


def one_finite(logits, generator):
    at = torch.randint(logits.shape[1], (len(logits), 1), generator=generator)
    return torch.full_like(logits, -INF).scatter_(1, at, -80.0)


def faulty(logits, generator):
    logits = 3 * logits
    logits[0, 3], logits[1 % len(logits), -1], logits[2 % len(logits)] = math.nan, INF, -INF
    return logits


def peaked(logits, generator):
    logits = 2 * logits
    head = logits[:, :60]
    head.copy_(16 - 0.3 * torch.arange(head.shape[1]))
    return logits


KINDS = {
    "normal": lambda x, g: 3 * x,
    "nearly flat": lambda x, g: 0.01 * x,
    "equal": lambda x, g: torch.zeros_like(x),
    "peaked": peaked,
    "bfloat16": lambda x, g: (3 * x).bfloat16(),
    "whole numbers": lambda x, g: (3 * x).round(),
    "masked": lambda x, g: masked(3 * x, 0.7, g),
    "few finite": lambda x, g: masked(3 * x, 1 - 20 / x.shape[1], g),
    "one finite": one_finite,
    "faulty": faulty,
    "huge": lambda x, g: 1e37 * x,
    "tiny": lambda x, g: 1e-42 * x,
}


def admitted(chains, width, draws="gumbel"):
    """Return a pipeline, a sampler and the rows of a step with a slot for each chain."""
    pipeline, sampler, history = Pipeline(Env(width)), Sampler(), History(slots=len(chains))
    draws = [draws] * len(chains) if isinstance(draws, str) else draws
    for slot, (chain, draw) in enumerate(zip(chains, draws, strict=True)):
        prompt = (1, 2, 3, slot)
        history.admit(slot, prompt, seed=1_000_003 * slot + 17)
        pipeline.admit(slot, Chain.parse(chain).active(), Admission(prompt))
        sampler.admit(slot, draw)
    return pipeline, sampler, Rows.build(history, range(len(chains)))


def random_cases(kind, count, *, mixed, draws=()):
    """Yield the chain, the logits [R, V] and the draw of each row, so many times over.

    `mixed`: share of the steps whose rows have chains of their own. `draws`: those of a row, or gumbel.
    """
    draw, generator = random.Random(kind), torch.Generator().manual_seed(len(kind))
    for _ in range(count):
        rows, width = draw.choice((1, 2, 5)), draw.choice(WIDTHS)
        logits = KINDS[kind](torch.randn(rows, width, generator=generator), generator)
        made = [" | ".join(filter(None, map(draw.choice, PARTS))) for _ in range(rows)]
        each = [draw.choice(draws) for _ in range(rows)] if draws else "gumbel"
        yield made if draw.random() < mixed else made[:1] * rows, logits, each


def compare_choice(make, chains, logits, draws="gumbel"):
    """Return the tokens of `make(pipeline, sampler)`, which are those of the stages and leave the logits."""
    pipeline, sampler, rows = admitted(chains, logits.shape[1], draws)
    before = logits.clone()
    found = make(pipeline, sampler)(logits, rows)
    assert torch.equal(found, sampler(pipeline(logits, rows), rows)), chains
    assert torch.equal(logits.nan_to_num(7.0), before.nan_to_num(7.0))
    return found

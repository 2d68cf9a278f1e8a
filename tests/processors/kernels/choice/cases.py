"""Logits with what is rare in them, and the values of stages for their rows."""

import math

import torch

from processors.kernels.choice.choose_rows import cut_torch, row_facts_torch
from processors.kernels.choice.tables import Control, Mark, block_facts_torch, num_words

INF = math.inf
SHAPES = [(1, 1), (3, 31), (2, 512), (2, 513), (3, 5000)]

KINDS = {
    "normal": lambda x: 3 * x,
    "whole numbers": lambda x: (3 * x).round(),
    "equal": lambda x: torch.zeros_like(x),
    "masked": lambda x: (3 * x).masked_fill(torch.rand_like(x) < 0.7, -INF),
    "few": lambda x: (3 * x).masked_fill(torch.rand_like(x) < 1 - 20 / x.shape[1], -INF),
    "huge": lambda x: 1e37 * x,
    "tiny": lambda x: 1e-42 * x,
}


def made(kind, rows, width):
    torch.manual_seed(rows * width)
    return KINDS[kind](torch.randn(rows, width))


def controls_of(rows, **values):
    """Controls of rows, the same in each, or one value a row; a temperature is that of cut and draw."""
    table = torch.zeros(rows, len(Control), dtype=torch.float64)
    table[:, Control.TOP_P] = 1
    heat = values.pop("heat", 0.8)
    for name, value in {"HEAT_CUT": heat, "HEAT_DRAW": heat, **values}.items():
        table[:, Control[name]] = torch.as_tensor(value, dtype=torch.float64)
    return table


def marked(logits, controls):
    """Levels and marks of rows behind their cuts."""
    facts = block_facts_torch(logits, controls)
    levels, marks, _ = row_facts_torch(logits, facts, controls, True)
    least, _ = cut_torch(logits, controls, levels, marks)
    marks[:, Mark.LEAST] = torch.where(marks[:, Mark.IS_CUT] > 0, least, marks[:, Mark.LEAST])
    return levels, marks


def patches_of(logits, seed=0):
    """Patches that mask a third of the ids, and give a tenth, but for the last row's, other logits."""
    rows, width = logits.shape
    generator = torch.Generator().manual_seed(seed)
    flags = torch.rand(2, rows, 32 * num_words(width), generator=generator)
    is_allowed, is_edited = flags[0] < 0.7, flags[1] < 0.1
    is_edited[:, width:] = is_edited[-1] = False
    bits = [
        (one.view(rows, -1, 32).long() << torch.arange(32)).sum(2).int() for one in (is_allowed, is_edited)
    ]
    sums = is_edited.view(rows, -1, 32).sum(2).cumsum(1).int()
    before = torch.nn.functional.pad(sums, (1, 0))[:, :-1]
    values = (3 * torch.randn(rows, int(sums.max()), generator=generator)).view(torch.int32)
    return torch.cat([*bits, before, sums[:, -1:], values], 1)

"""Parts shared by the kernels of a choice: columns of their tables, scale and order of logits.

controls [R, C] float64 are the values of the stages in each row. levels [R, L] float64 and marks
[R, M] int64 are what the kernels find out about it, one after the other. facts [R, 4, B] float32 are those
of each block of BLOCK ids. tokens [R] int64 are OPEN until one is chosen. lists [R, 2, CAPACITY] int64 are
room for the orders of listed logits, and for their masses, the ids that are kept or the row's bins.

The order of a logit is an int64: larger for a larger logit, and of equal ones for a lower id. The stages keep
the ids of a row whose order is at least its mark LEAST.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from processors.stages.tokens import LOWEST

__all__ = [
    "CAPACITY",
    "NUM_BINS",
    "OPEN",
    "Control",
    "Fact",
    "Level",
    "Mark",
    "bin_of",
    "cooled",
    "first_order",
    "goal_of",
    "heat",
    "is_mass_listed",
    "key_of",
    "order",
    "orders_of",
    "value_of",
    "without_stages",
]

CAPACITY = 4096  # ids of a row that are listed
NUM_BINS = 2048  # of a row's histogram
OPEN = -3  # in place of a token that is not yet chosen


class Control(IntEnum):
    """Columns of controls. A stage that is off in a row has the value 0; top-p has 1."""

    GREEDY = 0  # 1: the first of the largest logits is chosen
    HEAT_CUT = 1  # temperature at which stages truncate
    HEAT_DRAW = 2  # and that of the draw
    MIN_P = 3
    TOP_K = 4
    KEEP_TIES = 5
    TOP_P = 6
    EXCLUSIVE = 7
    IS_K_LATE = 8  # 1: top-k comes after top-p
    IS_MIN_LATE = 9  # 1: min-p comes after top-p
    INVERSE = 10  # 1: the draw is by inverse CDF


class Level(IntEnum):
    """Columns of levels."""

    PEAK = 0  # largest logit
    PER_UNIT = 1  # bins for a difference of 1
    UNIT = 2  # bits of the integer that stands for the mass of the largest logit
    RATE = 3  # 1 / temperature, where it may stand for a division; else 0


class Mark(IntEnum):
    """Columns of marks."""

    FAULT = 0  # EMPTY or NON_FINITE, else 0
    LEAST = 1  # order from which logits are kept
    COUNT = 2  # number of logits that are kept
    IS_CUT = 3  # 1: a stage truncates this row
    FROM = 4  # order from which logits are candidates of a cut
    MIN_P_LEAST = 5  # order from which min-p keeps
    TOTAL = 6  # mass of which top-p takes its share, where no top-k comes before it
    FIRST_BIN = 7  # the bins whose logits are collected
    LAST_BIN = 8
    COUNT_BEFORE = 9  # of the bins before them
    MASS_BEFORE = 10
    IN_BINS = 11  # number of logits in them; if more than CAPACITY, the whole row is looked at
    COLLECTED = 12  # number of logits that are collected
    LISTED = 13  # places of the list that are taken; 0 between launches
    ENDED = 14  # programs of the row that have ended; likewise


class Fact(IntEnum):
    """Rows of facts."""

    TOP = 0  # largest logit
    LOW = 1  # least finite one
    SUM = 2  # of exp(cooled logit - cooled top)
    FINITE = 3  # number of finite logits


_LOW_BITS = (1 << 31) - 1  # larger than any id


def without_stages() -> list[float]:
    """Return the controls of a row without any stage."""
    line = [0.0] * len(Control)
    line[Control.TOP_P] = 1.0
    return line


def heat(controls: Tensor, field: int) -> Tensor:
    """Return a temperature of each row as float32 [R, 1]; 0 where there is none."""
    return controls[:, field, None].float()


def cooled(logits: Tensor, peak: Tensor, temperature: Tensor) -> Tensor:
    """Return (logits - peak) / temperature [R, N], as the stage does, and the logits where that is 0."""
    some = torch.where(temperature > 0, temperature, 1)
    values = ((logits - peak) / some).clamp(min=LOWEST)
    return torch.where((temperature > 0) & (logits > -torch.inf), values, logits)


def key_of(values: Tensor) -> Tensor:
    """Return integers, int64, in the order of values float32; -0 is 0."""
    bits = torch.where(values == 0, 0.0, values).view(torch.int32).long()
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def order(values: Tensor, ids: Tensor) -> Tensor:
    """Return the order of values [R, N] float32 at these ids, int64."""
    return (key_of(values) << 32) | (_LOW_BITS - ids)


def orders_of(logits: Tensor, controls: Tensor, levels: Tensor) -> Tensor:
    """Return the order of each logit [R, V] as the stages that truncate see it."""
    values = cooled(logits.float(), levels[:, Level.PEAK, None].float(), heat(controls, Control.HEAT_CUT))
    return order(values, torch.arange(logits.shape[1], device=logits.device))


def value_of(key: Tensor) -> Tensor:
    """Return the float32 with this key, the upper half of an order."""
    return torch.where(key < 0, key ^ 0x7FFFFFFF, key).int().view(torch.float32)


def first_order(values: Tensor) -> Tensor:
    """Return the order, int64, from which logits are at least these values float32."""
    return order(values, torch.full((), _LOW_BITS, device=values.device))


def bin_of(values: Tensor, levels: Tensor, temperature: Tensor) -> Tensor:
    """Return the bin of each value [R, N]; the larger the value, the lower its bin."""
    top = torch.where(temperature > 0, 0.0, levels[:, Level.PEAK, None].float().clamp(min=LOWEST))
    places = (top - values) * levels[:, Level.PER_UNIT, None].float()
    return places.nan_to_num(0.0, posinf=NUM_BINS).clamp(0, NUM_BINS - 1).long()


def is_mass_listed(controls: Tensor) -> Tensor:
    """Return in which rows [R] top-p takes its share of what a top-k before it leaves."""
    is_k_first = (controls[:, Control.TOP_K] > 0) & (controls[:, Control.IS_K_LATE] == 0)
    return is_k_first & (controls[:, Control.TOP_P] < 1)


def goal_of(total: Tensor, controls: Tensor) -> Tensor:
    """Return the least mass [R, 1] int64 that reaches top-p's share of a total [R, 1], or exceeds it."""
    goal = total.double() * controls[:, Control.TOP_P, None]
    return torch.where(controls[:, Control.EXCLUSIVE, None] > 0, goal.floor().long() + 1, goal.ceil().long())

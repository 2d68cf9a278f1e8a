"""What the kernels of a choice share: the columns of their tables, and how logits are scaled and ordered.

controls [R, C] float64 are the values of the stages in each row. levels [R, L] float64 and marks
[R, M] int64 are what the kernels find out about it, one after the other. facts [R, 4, B] float32 are those
of each block of BLOCK ids.

The order of a logit is an int64: larger for a larger logit, and of equal ones for a lower id. What the stages
keep of a row is all that is at least LEAST in this order.
"""

from __future__ import annotations

import math
from enum import IntEnum

import torch
from torch import Tensor

from processors.stages.tokens import LOWEST

__all__ = [
    "CAPACITY",
    "LOG2_E",
    "NUM_BINS",
    "Control",
    "Fact",
    "Level",
    "Mark",
    "bin_of",
    "cooled",
    "first_order",
    "heat",
    "is_mass_listed",
    "masses",
    "order",
    "orders_of",
    "value_of",
    "without_stages",
]

CAPACITY = 4096  # ids of a row that are listed
NUM_BINS = 2048  # of a row's histogram


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
    UNIT = 2  # the integer that stands for the mass of the largest logit


class Mark(IntEnum):
    """Columns of marks."""

    FAULT = 0  # EMPTY or NON_FINITE, else 0
    LEAST = 1  # order from which logits are kept
    COUNT = 2  # number of logits that are kept
    LISTED = 3  # number of ids that `survey` lists
    IS_CUT = 4  # 1: a stage truncates this row
    FROM = 5  # order from which logits are candidates of a cut
    MIN_P_LEAST = 6  # order from which min-p keeps
    TOTAL = 7  # mass of which top-p takes its share, where no top-k comes before it
    FIRST_BIN = 8  # the bins whose logits are collected
    LAST_BIN = 9
    COUNT_BEFORE = 10  # of the bins before them
    MASS_BEFORE = 11
    IN_BINS = 12  # number of logits in them; if more than CAPACITY, the whole row is looked at
    COLLECTED = 13  # number of logits that are collected


class Fact(IntEnum):
    """Rows of facts."""

    TOP = 0  # largest logit
    LOW = 1  # least finite one
    SUM = 2  # of exp(cooled logit - cooled top)
    FINITE = 3  # number of finite logits


LOG2_E = math.log2(math.e)
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


def order(values: Tensor, ids: Tensor) -> Tensor:
    """Return the order of values [R, N] float32 at these ids, int64."""
    bits = torch.where(values == 0, 0.0, values).view(torch.int32).long()  # -0 equals 0
    key = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (key << 32) | (_LOW_BITS - ids)


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


def masses(values: Tensor, levels: Tensor, temperature: Tensor) -> Tensor:
    """Return exp(value - the largest value) [R, N] as integers, int64, that are summed without rounding."""
    peak = torch.where(temperature > 0, 0.0, levels[:, Level.PEAK, None].clamp(min=LOWEST))
    shares = ((values.double() - peak) * LOG2_E).exp2()
    return (shares * levels[:, Level.UNIT, None] + 0.5).long()


def bin_of(values: Tensor, levels: Tensor, temperature: Tensor) -> Tensor:
    """Return the bin of each value [R, N]; the larger the value, the lower its bin."""
    top = torch.where(temperature > 0, 0.0, levels[:, Level.PEAK, None].float().clamp(min=LOWEST))
    places = (top - values) * levels[:, Level.PER_UNIT, None].float()
    return places.nan_to_num(0.0, posinf=NUM_BINS).clamp(0, NUM_BINS - 1).long()


def is_mass_listed(controls: Tensor) -> Tensor:
    """Return in which rows [R] top-p takes its share of what a top-k before it leaves."""
    is_k_first = (controls[:, Control.TOP_K] > 0) & (controls[:, Control.IS_K_LATE] == 0)
    return is_k_first & (controls[:, Control.TOP_P] < 1)

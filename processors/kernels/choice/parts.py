"""Tables, sort keys and fixed-point scales shared by the kernels that truncate and sample.

The kernels replace scale, truncation (min-p, top-k, top-p) and draw of a step. They exchange tables:

    controls [R, C] float64           parameters of the stages in each row (`Control`)
    facts    [R, 4, B] float32        per block of BLOCK ids: maximum, minimum, sum of exp, count (`Fact`);
                                      maximum and sum together are the block's log-sum-exp
    levels   [R, L] float64           per row: maximum logit and the scales derived from it (`Level`)
    marks    [R, M] int64             per row: thresholds, counts and launch counters (`Mark`)
    tokens   [R] int64                OPEN until a token is chosen
    lists    [R, 2, CAPACITY] int64   [:, 0] the candidate list: sort keys of logits that may be kept;
                                      [:, 1] scratch: their masses, the kept ids, or the histogram's bins

The order of a logit is its sort key, an int64 made of (logit, id): larger for a larger logit, and of equal
ones for a lower id. It makes ties total: the stages keep exactly the ids whose order is at least the row's
threshold, the mark LEAST.

The mass of a logit is exp(logit - maximum) in fixed point (see masses.py). Counts and masses are integers, so
their sums do not depend on the order in which programs add: kernel and twin have equal bits.
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

CAPACITY = 4096  # entries of a row's candidate list
NUM_BINS = 2048  # bins of a row's histogram
OPEN = -3  # placeholder for a token that is not yet chosen


class Control(IntEnum):
    """Columns of controls. The value 0 turns a stage off in a row; for top-p it is 1."""

    GREEDY = 0  # 1: argmax; the lowest id wins a tie
    HEAT_CUT = 1  # temperature of the logits that are truncated; 0: none
    HEAT_DRAW = 2  # temperature of the logits that are sampled; 0: none
    MIN_P = 3
    TOP_K = 4
    KEEP_TIES = 5  # 1: top-k keeps all logits equal to the k-th largest
    TOP_P = 6
    EXCLUSIVE = 7  # 1: the kept mass is at most p; 0: it reaches p
    IS_K_LATE = 8  # 1: top-k follows top-p in the chain
    IS_MIN_LATE = 9  # 1: min-p follows top-p in the chain
    INVERSE = 10  # 1: the draw is by inverse CDF


class Level(IntEnum):
    """Columns of levels: the maximum logit of a row and the scales derived from it."""

    PEAK = 0  # largest logit
    PER_UNIT = 1  # histogram bins per logit difference of 1
    UNIT = 2  # fractional bits of masses: the maximum logit has the mass 2 ** UNIT
    RATE = 3  # 1 / temperature where multiplying by it can replace the division; else 0


class Mark(IntEnum):
    """Columns of marks: thresholds (as orders), counts and counters of a row."""

    FAULT = 0  # EMPTY or NON_FINITE, else 0
    LEAST = 1  # threshold: least order that the stages keep
    COUNT = 2  # number of kept logits
    IS_CUT = 3  # 1: a stage truncates this row
    FROM = 4  # least order of candidates: no stage keeps a logit below it
    MIN_P_LEAST = 5  # threshold of min-p alone
    TOTAL = 6  # mass that top-p normalises by, if no top-k precedes it
    FIRST_BIN = 7  # first histogram bin whose logits are listed
    LAST_BIN = 8  # last histogram bin whose logits are listed
    COUNT_BEFORE = 9  # number of logits in the bins before FIRST_BIN
    MASS_BEFORE = 10  # mass of the bins before FIRST_BIN
    IN_BINS = 11  # number of logits from FIRST_BIN to LAST_BIN; if above CAPACITY, the row itself is searched
    COLLECTED = 12  # number of candidates found
    LISTED = 13  # length of the candidate list; 0 between launches
    ENDED = 14  # finished programs of the row; 0 between launches


class Fact(IntEnum):
    """Rows of facts: reductions over the logits of one block of BLOCK ids."""

    TOP = 0  # maximum, or NaN
    LOW = 1  # minimum of the finite logits
    SUM = 2  # sum of exp((logit - TOP) / temperature); temperature 1 if there is none
    FINITE = 3  # number of finite logits


_LOW_BITS = (1 << 31) - 1  # larger than any id


def without_stages() -> list[float]:
    """Return the controls [C] of a row in which every stage is off."""
    line = [0.0] * len(Control)
    line[Control.TOP_P] = 1.0
    return line


def heat(controls: Tensor, field: int) -> Tensor:
    """Return the temperature of each row in column `field` as float32 [R, 1]; 0 for none."""
    return controls[:, field, None].float()


def cooled(logits: Tensor, peak: Tensor, temperature: Tensor) -> Tensor:
    """Return (logits - peak) / temperature [R, N] as the stage rounds it; the logits at temperature 0."""
    some = torch.where(temperature > 0, temperature, 1)
    values = ((logits - peak) / some).clamp(min=LOWEST)
    return torch.where((temperature > 0) & (logits > -torch.inf), values, logits)


def key_of(values: Tensor) -> Tensor:
    """Return int64 keys that sort as the float32 values do; -0 has the key of 0."""
    bits = torch.where(values == 0, 0.0, values).view(torch.int32).long()
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def order(values: Tensor, ids: Tensor) -> Tensor:
    """Return the orders (sort keys of value and id) of values [R, N] float32 at these ids, int64."""
    return (key_of(values) << 32) | (_LOW_BITS - ids)


def orders_of(logits: Tensor, controls: Tensor, levels: Tensor) -> Tensor:
    """Return the order of each logit [R, V] at the temperature of the truncating stages, int64."""
    values = cooled(logits.float(), levels[:, Level.PEAK, None].float(), heat(controls, Control.HEAT_CUT))
    return order(values, torch.arange(logits.shape[1], device=logits.device))


def value_of(key: Tensor) -> Tensor:
    """Return the float32 of a key, the inverse of `key_of`; an order has it in its upper 32 bits."""
    return torch.where(key < 0, key ^ 0x7FFFFFFF, key).int().view(torch.float32)


def first_order(values: Tensor) -> Tensor:
    """Return the least order, int64, of logits that are at least these float32 values."""
    return order(values, torch.full((), _LOW_BITS, device=values.device))


def bin_of(values: Tensor, levels: Tensor, temperature: Tensor) -> Tensor:
    """Return the histogram bin of each value [R, N] int64; bin 0 has the maximum of the row."""
    top = torch.where(temperature > 0, 0.0, levels[:, Level.PEAK, None].float().clamp(min=LOWEST))
    places = (top - values) * levels[:, Level.PER_UNIT, None].float()
    return places.nan_to_num(0.0, posinf=NUM_BINS).clamp(0, NUM_BINS - 1).long()


def is_mass_listed(controls: Tensor) -> Tensor:
    """Return the rows [R] bool in which top-k precedes top-p, which normalises by what top-k keeps."""
    is_k_first = (controls[:, Control.TOP_K] > 0) & (controls[:, Control.IS_K_LATE] == 0)
    return is_k_first & (controls[:, Control.TOP_P] < 1)


def goal_of(total: Tensor, controls: Tensor) -> Tensor:
    """Return the least mass [R, 1] int64 that reaches p * total [R, 1], or exceeds it if EXCLUSIVE."""
    goal = total.double() * controls[:, Control.TOP_P, None]
    return torch.where(controls[:, Control.EXCLUSIVE, None] > 0, goal.floor().long() + 1, goal.ceil().long())

"""Tables, sort keys and fixed-point masses shared by the kernels that truncate and sample; reductions over
blocks of ids (the facts); and patches, the effect of masks, biases and penalties without a copy of the
logits.
"""

from __future__ import annotations

import math
from enum import IntEnum
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from processors.chain_end import Control as Control
from processors.graphs import upload
from processors.kernels.choice import Edit, Listed, Turn
from processors.kernels.operations import blocked_bits, operation
from processors.sampler import BLOCK
from processors.stages.shared import HIGHEST, LOWEST

CAPACITY = 4096  # entries of a row's candidate list
NUM_BINS = 2048  # bins of a row's histogram
OPEN = -3  # placeholder for a token that is not yet chosen


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


MOST_BITS = 59  # bits of the integer sum over a row
FARTHEST = 64.0  # distance below the maximum from which a mass is 0
FRACTION = 38  # fractional bits of the fixed-point exponent d * log2(e)
LOG2_E = round(math.log2(math.e) * 2**FRACTION)
POWERS = 6  # leading bits of the fraction, which index the table of powers
POWER_BITS = 62  # the table has 1 as 2^POWER_BITS
_LEFT = FRACTION - POWERS
_STEP = math.log(2) / 2**POWERS
# 1 - exp(-_STEP t) = t (c1 - t (c2 - t (c3 - t c4))) for t from 0 to 1, in units of 2^-37.
_SERIES_BITS = 37
SERIES = tuple(round(_STEP**n / math.factorial(n) * 2**_SERIES_BITS) for n in (1, 2, 3, 4))
TO_PRODUCT = 32 + _SERIES_BITS - 64  # from (power >> 32) * series to power * share


@lru_cache(8)
def powers(device: torch.device) -> Tensor:
    """Return 2^-(j / 64) for j from 0 to 63 in units of 2^-POWER_BITS, then the SERIES, int64 [68]."""
    table = [round(2 ** (POWER_BITS - j / 2**POWERS)) for j in range(2**POWERS)]
    return upload([*table, *SERIES], device, torch.int64)


def masses(values: Tensor, levels: Tensor, temperature: Tensor) -> Tensor:
    """Return exp(value - maximum of the row) [R, N] int64 in units of 2^-UNIT, rounded down."""
    peak = levels[:, Level.PEAK, None].float().clamp(min=LOWEST)
    top = torch.where(temperature > 0, 0.0, peak)
    below = top - values
    # Rounding error of the difference (Knuth's TwoSum).
    shift = below - top
    error = (top - (below - shift)) - (values + shift)
    is_near = below < FARTHEST
    below = torch.where(is_near, below, FARTHEST).contiguous()
    error = torch.where(is_near & (temperature <= 0), error, 0.0)
    bits = below.view(torch.int32).long()
    product = ((bits & 0x7FFFFF) | 0x800000) * LOG2_E
    exponent = product >> (150 - (bits >> 23)).clamp(max=63)
    exponent += (error * float(LOG2_E)).long()
    t, series = exponent & (2**_LEFT - 1), torch.full_like(exponent, SERIES[3])
    for term in reversed(SERIES[:3]):
        series = term - (t * series >> 32)
    power = powers(values.device)[exponent >> _LEFT & (2**POWERS - 1)]
    product_of_powers = power - ((power >> 32) * (t * series >> 32) >> TO_PRODUCT)
    unit = levels[:, Level.UNIT, None].long()
    result: Tensor = product_of_powers >> ((exponent >> FRACTION) + POWER_BITS - unit).clamp(max=63)
    return result


def in_blocks(values: Tensor, beyond: float) -> Tensor:
    """Return values [R, V] in blocks [R, B, BLOCK]; the last one is padded with `beyond`."""
    return pad(values, (0, -values.shape[1] % BLOCK), value=beyond).view(len(values), -1, BLOCK)


def facts_of(logits: Tensor, temperature: Tensor) -> Tensor:
    """Return the facts [R, 4, B] (see `Fact`) of logits [R, V] at a temperature [R, 1]."""
    blocks = in_blocks(logits.float(), -torch.inf)
    is_finite = blocks > -torch.inf
    top = blocks.amax(-1)
    low = torch.where(is_finite, blocks, torch.inf).amin(-1)
    base = torch.where(is_finite.any(-1), top, 0)[..., None]
    some = torch.where(temperature > 0, temperature, 1)[..., None]
    sums = ((blocks - base) / some).exp().sum(-1)
    return torch.stack([top, low, sums, is_finite.sum(-1).float()], 1)


def block_facts_torch(logits: Tensor, controls: Tensor) -> Tensor:
    """Return the facts [R, 4, B] of logits [R, V] at the temperature of the truncating stages."""
    return facts_of(logits, heat(controls, Control.HEAT_CUT))


def num_words(width: int) -> int:
    """Return the number of 32-bit words W of a mask over `width` ids."""
    return -(-width // 32)


def num_values(width: int, lists: Tensor | None, tokens: Tensor | None, drafts: Tensor | None) -> int:
    """Return the capacity N for values in a patch: one for each listed id and each token of a history."""
    if lists is None or tokens is None or drafts is None:
        return 0
    return min(width, lists.shape[1] + tokens.shape[1] + drafts.shape[1])


def patch_logits_torch(
    logits: Tensor,
    edits: Tensor,
    masks: Tensor | None = None,
    lists: Tensor | None = None,
    values: Tensor | None = None,
    tokens: Tensor | None = None,
    lengths: Tensor | None = None,
    prompts: Tensor | None = None,
    slots: Tensor | None = None,
    drafts: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """As patch_logits, in PyTorch, row by row."""
    rows, width = logits.shape
    is_allowed = torch.arange(width, device=logits.device) < edits[:, Edit.SIZE, None]
    if masks is not None:
        is_allowed &= _flags(masks, width)
    is_edited = torch.zeros_like(is_allowed)
    edited = torch.zeros(rows, num_values(width, lists, tokens, drafts), device=logits.device)
    if lists is not None:
        named = (
            tensor for tensor in (tokens, lengths, prompts, slots, drafts, offsets) if tensor is not None
        )
        history, ends, begins, row_slots, late, more = named
        for row, slot in enumerate(row_slots.tolist()):
            prompt, entries = int(begins[slot]), lists[row] >= 0
            seen = torch.cat([history[slot, : int(ends[slot])], late[row, : int(more[row])]])
            added = None if values is None else values[row][entries]
            new, mine = _edited(logits[row], edits[row], lists[row][entries], added, seen, prompt)
            is_edited[row] = mine
            edited[row, : int(mine.sum())] = new[mine].float()
            is_allowed[row, _masked(edits[row], lists[row][entries], len(seen) - prompt)] = False
    words = _words(is_edited)
    counts = is_edited.sum(1, keepdim=True, dtype=torch.int32)
    sums = pad(is_edited, (0, -width % 32)).view(rows, -1, 32).sum(2).cumsum(1)
    before = pad(sums, (1, 0))[:, :-1].int()
    return torch.cat([_words(is_allowed), words, before, counts, edited.view(torch.int32)], 1)


def patched(logits: Tensor, patches: Tensor | None) -> Tensor:
    """Return the logits [R, V] with their patches [R, P], float32; the same tensor without patches."""
    if patches is None:
        return logits
    width, words = logits.shape[1], num_words(logits.shape[1])
    is_allowed, is_edited = (_flags(patches[:, at : at + words], width) for at in (0, words))
    values = patches[:, 3 * words + 1 :].contiguous().view(torch.float32)
    new = logits.float()
    if values.shape[1]:
        column = (is_edited.cumsum(1) - 1).clamp(0, values.shape[1] - 1)
        new = torch.where(is_edited, values.gather(1, column), new)
    return torch.where((new < torch.inf) & ~is_allowed, -torch.inf, new)


def _flags(words: Tensor, width: int) -> Tensor:  # [R, W] -> [R, width] bool
    octets = words.contiguous().view(torch.uint8).flatten().to(torch.int32)
    blocked = blocked_bits(words.device).index_select(0, octets).view(torch.bool)
    return ~blocked.view(len(words), -1)[:, :width]


def _words(flags: Tensor) -> Tensor:  # [R, V] bool -> [R, W] int32
    padded = pad(flags, (0, -flags.shape[1] % 32)).view(len(flags), -1, 32)
    return (padded.long() << torch.arange(32, device=flags.device)).sum(2).int()


def _masked(edits: Tensor, entries: Tensor, position: int) -> Tensor:
    """Return the ids that entries [N] mask at a position of the output."""
    bits = entries >> 32
    masked = (bits & Listed.MASKED) > 0
    masked |= ((bits & Listed.FIRST) > 0) & (position == 0)
    masked |= ((bits & Listed.EARLY) > 0) & (position < edits[Edit.EARLY])
    return (entries & 0xFFFFFFFF)[masked]


def _edited(
    logits: Tensor, edits: Tensor, entries: Tensor, values: Tensor | None, seen: Tensor, prompt: int
) -> tuple[Tensor, Tensor]:
    """Return the edited logits [V] float64 of a row with history `seen` [L], and which are edited [V]."""
    old, ids, bits = logits.double(), entries & 0xFFFFFFFF, entries >> 32
    new, is_edited = old.clone(), torch.zeros_like(old, dtype=torch.bool)
    for turn in edits[Edit.TURNS :].tolist():
        if turn == Turn.BIAS and values is not None:
            added, mine = torch.zeros_like(old), ids[(bits & Listed.BIASED) > 0]
            added[mine] = values[(bits & Listed.BIASED) > 0]
            touched, changed = torch.zeros_like(is_edited), new + added
            touched[mine] = True
            new = torch.where((added == -torch.inf) & (new < torch.inf), -torch.inf, new)
        elif turn > Turn.BIAS:
            number = int(turn) - Turn.REPETITION
            field = (Edit.REPETITION, Edit.FREQUENCY, Edit.PRESENCE)[number]
            counts = _counts(edits[field : field + 3], seen, prompt, len(old))
            counts[ids[(bits & (1 << number)) > 0]] = 0
            touched, penalty = counts > 0, float(edits[field])
            if turn == Turn.REPETITION:
                changed = torch.where(new > 0, new / max(penalty, 1e-300), new * penalty)
            else:
                changed = new - penalty * (counts.double() if turn == Turn.FREQUENCY else 1)
        else:
            continue
        is_edited |= touched
        changed = changed.clamp(LOWEST, HIGHEST).float().double()
        new = torch.where(touched & ~new.isinf(), changed, new)
    return new, is_edited


def _counts(values: Tensor, seen: Tensor, prompt: int, width: int) -> Tensor:
    """Return the count [V] of each id within a penalty's scope; `values` [3]: penalty, scope, window."""
    penalty, scope, window = values.tolist()
    end = prompt if scope == 0 else len(seen)
    start = max(prompt if scope == 1 else 0, end - window)
    scoped = seen[int(start) : end]
    counts = scoped[scoped < width].bincount(minlength=width)
    return counts if penalty else torch.zeros_like(counts)


patch_logits = operation(
    "patch_logits(Tensor logits, Tensor edits, Tensor? masks=None, Tensor? lists=None, Tensor? values=None, "
    "Tensor? tokens=None, Tensor? lengths=None, Tensor? prompts=None, Tensor? slots=None, "
    "Tensor? drafts=None, Tensor? offsets=None) -> Tensor",
    patch_logits_torch,
    "processors.kernels.choice.patches_triton:patch_logits_triton",
)
"""Return the patches [R, P] int32 of logits [R, V] for their edits [R, E].

masks [R, W] int32 forbid the ids whose bit is 0. lists [R, N] int64 are entries (see `Listed`); values [R, N]
float64 are their logit biases, None if no entry has one. tokens [S, L], lengths [S] and prompts [S] are those
of History; slots and offsets [R] and drafts [R, K] are those of Rows. A logit of NaN or +inf is never masked,
so that a fault of the model is detected.
"""

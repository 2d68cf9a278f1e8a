"""One choice: edit, truncate and draw for all rows, as a fixed sequence of kernels on tensors, each with
its plain implementation: thresholds of rows, candidate lists and histograms, cuts, the draw, processed
logits.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from processors.kernels.choice.tables import (
    CAPACITY,
    MOST_BITS,
    NUM_BINS,
    OPEN,
    Control,
    Fact,
    Level,
    Mark,
    bin_of,
    block_facts_torch,
    cooled,
    first_order,
    goal_of,
    heat,
    in_blocks,
    is_mass_listed,
    key_of,
    masses,
    order,
    orders_of,
    patch_logits,
    patched,
    value_of,
)
from processors.kernels.operations import operation
from processors.rng import Stream, row_keys, uniform
from processors.sampler import BLOCK, EMPTY, NON_FINITE, PLAIN_LIMIT, gumbel_max, invert
from processors.stages.shared import LOWEST
from processors.stages.truncation import least_kept

REACH = 40.0  # largest span of the histogram below the maximum logit; the last bin has the rest
TAME, VAST = 2.0**-20, 2.0**60  # bounds within which a quotient neither overflows nor is denormal
_NEAR = 1e-30  # least span of the histogram
_INT_MIN = torch.iinfo(torch.int64).min


def all_facts_torch(
    logits: Tensor, controls: Tensor, cuts: bool, patches: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As all_facts, in PyTorch."""
    logits = patched(logits, patches)
    facts = block_facts_torch(logits, controls)
    return facts, *row_facts_torch(logits, facts, controls, cuts)


def row_facts_torch(
    logits: Tensor, facts: Tensor, controls: Tensor, cuts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return levels [R, L], marks [R, M] and tokens [R] from facts [R, 4, B]; OPEN for rows that sample."""
    rows, device = len(facts), facts.device
    peak = facts[:, Fact.TOP].amax(1)
    levels = torch.zeros(rows, len(Level), dtype=torch.float64, device=device)
    marks = torch.zeros(rows, len(Mark), dtype=torch.int64, device=device)
    levels[:, Level.PEAK] = peak
    marks[:, Mark.FAULT] = torch.where(
        peak == -torch.inf, EMPTY, torch.where(peak < torch.inf, 0, NON_FINITE)
    )
    marks[:, Mark.LEAST], marks[:, Mark.COUNT] = _INT_MIN, facts[:, Fact.FINITE].long().sum(1)
    is_greedy, is_sound = controls[:, Control.GREEDY] > 0, marks[:, Mark.FAULT] == 0
    if cuts:
        is_cut = (controls[:, Control.MIN_P] > 0) | (controls[:, Control.TOP_K] > 0)
        is_cut |= controls[:, Control.TOP_P] < 1
        marks[:, Mark.IS_CUT] = is_cut & is_sound & ~is_greedy
        _set_bounds(facts, controls, levels, marks)
    marks[:, Mark.FROM] = torch.where(marks[:, Mark.IS_CUT] > 0, marks[:, Mark.FROM], _INT_MIN)
    first = (logits.float() == peak[:, None]).int().argmax(1)
    return levels, marks, torch.where(is_sound, torch.where(is_greedy, first, OPEN), marks[:, Mark.FAULT])


def _set_bounds(facts: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> None:
    """Set the least order of candidates, the scale of the histogram over them, and the unit of masses."""
    temperature = heat(controls, Control.HEAT_CUT)
    peak = levels[:, Level.PEAK, None].float().clamp(min=LOWEST)
    top = torch.where(temperature > 0, 0, peak)
    tops = cooled(facts[:, Fact.TOP], peak, temperature)
    mass = ((tops - top).exp() * facts[:, Fact.SUM]).sum(1, keepdim=True)
    min_p, k, p = (controls[:, field, None] for field in (Control.MIN_P, Control.TOP_K, Control.TOP_P))
    is_k_first = (k > 0) & (controls[:, Control.IS_K_LATE, None] == 0)
    is_min_first = (min_p > 0) & (controls[:, Control.IS_MIN_LATE, None] == 0)
    is_mass_listed = is_k_first & (p < 1)
    # The exact threshold of min-p: top + log(min_p).
    least = torch.where(min_p > 0, least_kept(top, min_p), -torch.inf)
    from_min_p = torch.where(is_mass_listed & ~is_min_first, -torch.inf, least)
    # The k-th largest block maximum bounds the k-th largest logit from below: k blocks reach it. Rounding
    # its key down to 16 bits keeps the bound, and halves the kernel's search.
    ranked = key_of(tops).sort(1, descending=True).values
    kth = ranked.gather(1, (k.long() - 1).clamp(0, tops.shape[1] - 1)) >> 16 << 16
    kth = value_of(kth.maximum(key_of(torch.full_like(top, -torch.inf))))
    from_k = torch.where((k > 0) & (k <= tops.shape[1]), kth, -torch.inf)
    # All logits below from_p together have less than 1 - p of the mass, so top-p drops them.
    kept_mass = torch.where(is_k_first | is_min_first, 1, mass.double() * 0.999)
    count = marks[:, Mark.COUNT, None].clamp(min=1)
    from_p = (top.double() + ((1 - p) * 0.5 * kept_mass / count).log()).float()
    from_p = torch.where((p < 1) & ~is_mass_listed, from_p, -torch.inf)
    begin = torch.maximum(from_min_p, torch.maximum(from_k, from_p))
    marks[:, Mark.FROM] = first_order(begin)[:, 0]
    marks[:, Mark.MIN_P_LEAST] = torch.where(min_p > 0, first_order(least), _INT_MIN)[:, 0]
    lowest = facts[:, Fact.LOW].amin(1, keepdim=True)
    is_tame = (peak.abs() >= TAME) & (peak.abs() <= VAST) & (lowest >= -VAST)
    is_tame &= (temperature >= TAME) & (temperature <= 1 / TAME)
    levels[:, Level.RATE] = torch.where(is_tame, 1 / temperature, 0)[:, 0].double()
    low = cooled(lowest, peak, temperature)
    reach = (top - torch.maximum(begin, low)).clamp(max=REACH).clamp(min=_NEAR)
    levels[:, Level.PER_UNIT] = (NUM_BINS / reach)[:, 0].double()
    levels[:, Level.UNIT] = MOST_BITS - mass.frexp().exponent[:, 0].double()


all_facts = operation(
    "all_facts(Tensor logits, Tensor controls, bool cuts, Tensor? patches=None) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    all_facts_torch,
    "processors.kernels.choice.facts_triton:all_facts_triton",
)
"""Facts [R, 4, B] of logits [R, V] with their patches, levels [R, L], marks [R, M] and tokens [R].

A greedy row has its token, a failed row its fault (EMPTY, NON_FINITE), any other row OPEN. `cuts`: some row
is truncated, so the marks of its thresholds are set.
"""


def find_window_torch(
    logits: Tensor,
    controls: Tensor,
    levels: Tensor,
    facts: Tensor,
    marks: Tensor,
    lists: Tensor,
    tokens: Tensor,
    patches: Tensor | None = None,
) -> None:
    """As find_window, in PyTorch."""
    logits = patched(logits, patches)
    is_open = tokens == OPEN
    bins = lists[:, 1].view(len(lists), 2, NUM_BINS)
    _fill(logits, controls, levels, marks, bins, is_open)
    window = _window(bins, controls, levels, marks)
    for mark, values in window.items():
        marks[:, mark] = torch.where(is_open, values[:, 0], marks[:, mark])


def _fill(
    logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, bins: Tensor, is_open: Tensor
) -> None:
    """Add the candidates of open rows to bins [R, 2, NUM_BINS]: their counts, and their masses."""
    temperature = heat(controls, Control.HEAT_CUT)
    values = cooled(logits.float(), levels[:, Level.PEAK, None].float(), temperature)
    orders = order(values, torch.arange(logits.shape[1], device=logits.device))
    is_candidate = is_open[:, None] & (values > -torch.inf) & (orders >= marks[:, Mark.FROM, None])
    weighs = is_candidate & ((controls[:, Control.TOP_P] < 1) & ~is_mass_listed(controls))[:, None]
    bin_ = bin_of(values, levels, temperature)
    bins[:, 0].scatter_add_(1, bin_, is_candidate.long())
    bins[:, 1].scatter_add_(1, bin_, torch.where(weighs, masses(values, levels, temperature), 0))


def _window(bins: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> dict[Mark, Tensor]:
    """Return the marks [R, 1] that tell which bins are listed, and the count and mass before them."""
    counts, sums = bins.cumsum(2).unbind(1)
    k, p = controls[:, Control.TOP_K, None], controls[:, Control.TOP_P, None]
    is_listed = is_mass_listed(controls)[:, None]
    is_min_last = (controls[:, Control.IS_MIN_LATE, None] > 0) & is_listed
    is_reached = sums >= goal_of(marks[:, Mark.TOTAL, None], controls)
    value = value_of(marks[:, Mark.MIN_P_LEAST, None] >> 32)
    of_min_p = bin_of(value, levels, heat(controls, Control.HEAT_CUT))
    ends = torch.stack(
        [
            torch.where(k > 0, _first(counts >= k), NUM_BINS - 1),
            torch.where((p < 1) & ~is_listed, _first(is_reached), NUM_BINS - 1),
            torch.where((controls[:, Control.MIN_P, None] > 0) & ~is_min_last, of_min_p, NUM_BINS - 1),
        ]
    )
    last = ends.amin(0)
    count, inside = counts.gather(1, last), bins[:, 0].gather(1, last)
    is_narrow = (count > CAPACITY) & ~is_listed & (inside <= CAPACITY)
    before = torch.where(is_narrow, count - inside, 0)
    return {
        Mark.FIRST_BIN: torch.where(is_narrow, last, 0),
        Mark.LAST_BIN: last,
        Mark.COUNT_BEFORE: before,
        Mark.MASS_BEFORE: torch.where(is_narrow, sums.gather(1, last) - bins[:, 1].gather(1, last), 0),
        Mark.IN_BINS: count - before,
    }


def _first(flags: Tensor) -> Tensor:
    """Return the index [R, 1] of the first True of each row; the last index if there is none."""
    return torch.where(flags.any(1), flags.int().argmax(1), flags.shape[1] - 1)[:, None]


find_window = operation(
    "find_window(Tensor logits, Tensor controls, Tensor levels, Tensor facts, Tensor(a!) marks, "
    "Tensor(b!) lists, Tensor tokens, Tensor? patches=None) -> ()",
    find_window_torch,
    "processors.kernels.choice.bins_triton:find_window_triton",
)
"""Set FIRST_BIN, LAST_BIN, COUNT_BEFORE, MASS_BEFORE and IN_BINS of each open row.

No logit beyond LAST_BIN is kept. FIRST_BIN equals LAST_BIN where a list holds that bin but not all up to it,
unless top-p normalises by what top-k keeps; else FIRST_BIN is 0.
"""


def cut_torch(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least order that the stages keep and the number of kept logits, int64 [R] each."""
    orders = orders_of(logits, controls, levels).sort(1, descending=True).values
    temperature = heat(controls, Control.HEAT_CUT)
    finite = (logits > -torch.inf).sum(1, keepdim=True)
    rank = torch.arange(logits.shape[1], device=logits.device)
    weights = torch.where(rank < finite, masses(value_of(orders >> 32), levels, temperature), 0)
    min_p, k, p = (controls[:, field, None] for field in (Control.MIN_P, Control.TOP_K, Control.TOP_P))
    above = torch.where(min_p > 0, (orders >= marks[:, Mark.MIN_P_LEAST, None]).sum(1, keepdim=True), finite)
    last = orders.gather(1, (k.long() - 1).clamp(0, logits.shape[1] - 1))
    tied = ((orders >> 32) >= (last >> 32)).sum(1, keepdim=True).minimum(finite)
    most_k = torch.where(controls[:, Control.KEEP_TIES, None] > 0, tied.maximum(k.long()), k.long())
    first = torch.where(k > 0, most_k.minimum(finite), finite)
    is_min_late, is_k_late = (
        controls[:, field, None] > 0 for field in (Control.IS_MIN_LATE, Control.IS_K_LATE)
    )
    early = torch.where(is_min_late, finite, above).minimum(torch.where(is_k_late, finite, first))
    sums = weights.cumsum(1)
    below = (sums < goal_of(sums.gather(1, (early - 1).clamp(min=0)), controls)).sum(1, keepdim=True)
    nucleus = torch.where(controls[:, Control.EXCLUSIVE, None] > 0, below, below + 1)
    count = above.minimum(first).minimum(torch.where(p < 1, nucleus, finite)).clamp(min=1)
    least = orders.gather(1, (count - 1).clamp(max=logits.shape[1] - 1))
    return least[:, 0], count[:, 0]


_LEAST_ORDER = torch.iinfo(torch.int64).min


def kept(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> Tensor:
    """Return a mask [R, V] bool of the logits that the stages keep."""
    return (orders_of(logits, controls, levels) >= marks[:, Mark.LEAST, None]) & (logits > -torch.inf)


def draw_listed_torch(
    logits: Tensor,
    controls: Tensor,
    levels: Tensor,
    facts: Tensor,
    marks: Tensor,
    lists: Tensor,
    seeds: Tensor,
    positions: Tensor,
    tokens: Tensor,
    is_window: bool,
    patches: Tensor | None = None,
) -> None:
    """As draw_listed, in PyTorch."""
    logits = patched(logits, patches)
    is_open, is_cut = tokens == OPEN, marks[:, Mark.IS_CUT] > 0
    if not is_window:
        marks[:, Mark.TOTAL] = torch.where(is_open, _total(logits, controls, levels, marks), 0)
    is_here = _candidates(logits, controls, levels, marks, is_window) & is_open[:, None]
    count = is_here.sum(1)
    is_decided = is_open & ~(is_cut & (count > CAPACITY))
    marks[:, Mark.COLLECTED] = torch.where(
        is_decided, count, torch.where(is_open, 0, marks[:, Mark.COLLECTED])
    )
    row, ids = (is_here & is_decided[:, None]).nonzero(as_tuple=True)
    column = torch.arange(len(row), device=row.device) - (marks[:, Mark.COLLECTED].cumsum(0) - count)[row]
    lists[row, 0, column] = orders_of(logits, controls, levels)[row, ids]
    lists[:, 1] = torch.where((is_open & ~is_decided)[:, None], 0, lists[:, 1])  # histogram bins
    least, left = cut_torch(logits, controls, levels, marks)
    is_new = is_decided & is_cut
    marks[:, Mark.LEAST] = torch.where(is_new, least, marks[:, Mark.LEAST])
    marks[:, Mark.COUNT] = torch.where(is_new, left, marks[:, Mark.COUNT])
    drawn = _drawn(logits, controls, levels, marks, seeds, positions)
    tokens.copy_(torch.where(is_decided, drawn, tokens))


def _total(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> Tensor:
    """Return the mass [R] int64 that top-p normalises by; 0 where top-k precedes it."""
    temperature = heat(controls, Control.HEAT_CUT)
    orders = orders_of(logits, controls, levels)
    is_late = controls[:, Control.IS_MIN_LATE] > 0
    least = torch.where(is_late, _LEAST_ORDER, marks[:, Mark.MIN_P_LEAST])[:, None]
    weights = masses(value_of(orders >> 32), levels, temperature)
    sums = torch.where((orders >= least) & (logits > -torch.inf), weights, 0).sum(1)
    return torch.where((controls[:, Control.TOP_P] < 1) & ~is_mass_listed(controls), sums, 0)


def _candidates(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, is_window: bool) -> Tensor:
    """Return a mask [R, V] bool of the logits that enter the candidate list."""
    orders = orders_of(logits, controls, levels)
    is_here = (orders >= marks[:, Mark.FROM, None]) & (logits > -torch.inf)
    if not is_window:
        is_listed = (marks[:, Mark.IS_CUT] > 0) | (marks[:, Mark.COUNT] <= PLAIN_LIMIT)
        return is_here & is_listed[:, None]
    bin_ = bin_of(value_of(orders >> 32), levels, heat(controls, Control.HEAT_CUT))
    is_here &= (bin_ >= marks[:, Mark.FIRST_BIN, None]) & (bin_ <= marks[:, Mark.LAST_BIN, None])
    return is_here & (marks[:, Mark.IN_BINS, None] <= CAPACITY)


def _drawn(
    logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, seeds: Tensor, positions: Tensor
) -> Tensor:
    values = cooled(logits.float(), levels[:, Level.PEAK, None].float(), heat(controls, Control.HEAT_DRAW))
    values = values.masked_fill(~kept(logits, controls, levels, marks), -torch.inf)
    return gumbel_max(values, seeds, positions)


draw_listed = operation(
    "draw_listed(Tensor logits, Tensor controls, Tensor levels, Tensor(a!) facts, Tensor(b!) marks, "
    "Tensor(c!) lists, Tensor seeds, Tensor positions, Tensor(d!) tokens, bool is_window, "
    "Tensor? patches=None) -> ()",
    draw_listed_torch,
    "processors.kernels.choice.listed_triton:draw_listed_triton",
)
"""Choose the tokens [R] of open rows as `Sampler` does by Gumbel-max.

A truncated row lists its candidates; if they exceed CAPACITY, it stays open and its bins are zeroed for
find_window. A row without truncation lists all its logits if they are at most PLAIN_LIMIT. With `is_window`
open rows list the logits in their marked bins, and no row stays open.
"""


def _left(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> Tensor:
    """Return the kept logits in blocks [R, B, BLOCK] at the temperature of the draw, -inf elsewhere."""
    peak = levels[:, Level.PEAK, None].float()
    values = cooled(logits.float(), peak, heat(controls, Control.HEAT_DRAW))
    return in_blocks(values.masked_fill(~kept(logits, controls, levels, marks), -torch.inf), -torch.inf)


def block_weights_torch(
    logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, patches: Tensor | None = None
) -> Tensor:
    """As block_weights, in PyTorch."""
    logits = patched(logits, patches)
    top = torch.where(heat(controls, Control.HEAT_DRAW) > 0, 0, levels[:, Level.PEAK, None].float())
    values = _left(logits, controls, levels, marks) - top[..., None]
    is_mine = (controls[:, Control.INVERSE] > 0) & (marks[:, Mark.FAULT] == 0)
    return torch.where(is_mine[:, None], values.exp().sum(2), 0)


def invert_ids_torch(
    logits: Tensor,
    controls: Tensor,
    levels: Tensor,
    marks: Tensor,
    weights: Tensor,
    seeds: Tensor,
    positions: Tensor,
    tokens: Tensor,
    patches: Tensor | None = None,
) -> None:
    """As invert_ids, in PyTorch."""
    logits = patched(logits, patches)
    is_mine = (controls[:, Control.INVERSE] > 0) & (marks[:, Mark.FAULT] == 0)
    keys = row_keys(seeds, positions, Stream.TOKEN)[:, None]
    block, within = invert(weights.double(), uniform(keys, torch.zeros_like(keys)))
    inside = _left(logits, controls, levels, marks).double()[
        torch.arange(len(logits), device=logits.device), block[:, 0]
    ]
    choice, _ = invert((inside - inside.amax(1, keepdim=True)).exp(), within)
    tokens.copy_(torch.where(is_mine, (block * BLOCK + choice)[:, 0], tokens))


block_weights = operation(
    "block_weights(Tensor logits, Tensor controls, Tensor levels, Tensor marks, Tensor? patches=None) "
    "-> Tensor",
    block_weights_torch,
    "processors.kernels.choice.inverse_triton:block_weights_triton",
)
"""Sum of exp(x - maximum of the row) over the kept logits of each block, [R, B] float32.

0 in failed rows and in rows that do not draw by inverse CDF.
"""

invert_ids = operation(
    "invert_ids(Tensor logits, Tensor controls, Tensor levels, Tensor marks, Tensor weights, Tensor seeds, "
    "Tensor positions, Tensor(a!) tokens, Tensor? patches=None) -> ()",
    invert_ids_torch,
    "processors.kernels.choice.inverse_triton:invert_ids_triton",
)
"""Write the tokens [R] int64 of the rows that draw by inverse CDF, as `Sampler` draws them."""


def processed_logits_torch(
    logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, patches: Tensor | None = None
) -> Tensor:
    """As processed_logits, in PyTorch."""
    values = patched(logits, patches).float()
    cold = cooled(values, levels[:, Level.PEAK, None].float(), heat(controls, Control.HEAT_DRAW))
    left = cold.masked_fill(~kept(values, controls, levels, marks), -torch.inf)
    return torch.where(marks[:, Mark.FAULT, None] < 0, values, left)


processed_logits = operation(
    "processed_logits(Tensor logits, Tensor controls, Tensor levels, Tensor marks, Tensor? patches=None) "
    "-> Tensor",
    processed_logits_torch,
    "processors.kernels.choice.processed_triton:processed_logits_triton",
)
"""Logits [R, V] float32 after edits, temperature and truncation: -inf where not kept.

Failed rows have their edits only.
"""


# greedy: all rows are. draw: no row is truncated. cut: some are. -inverse: some rows draw by inverse CDF.
Kind = Literal["greedy", "draw", "cut", "draw-inverse", "cut-inverse"]


class Edits(NamedTuple):
    """Masks and penalties: edits [R, E], lists [R, N] or None, bit masks [R, ceil(V / 32)] or None.

    values [R, N] float64 are the biases of the lists' entries, or None. The other fields are those of
    History and Rows; None without lists. See patch_logits.
    """

    edits: Tensor
    masks: Tensor | None = None
    lists: Tensor | None = None
    values: Tensor | None = None
    tokens: Tensor | None = None
    lengths: Tensor | None = None
    prompts: Tensor | None = None
    slots: Tensor | None = None
    drafts: Tensor | None = None
    offsets: Tensor | None = None


class Given(NamedTuple):
    """Inputs of a choice: logits [R, V], controls [R, C] (see `Control`), seeds and positions [R] int64."""

    logits: Tensor
    controls: Tensor
    seeds: Tensor
    positions: Tensor


class Marked(NamedTuple):
    """Result of a choice: levels [R, L], marks [R, M] (see parts.py), tokens [R] int64, patches [R, P]."""

    levels: Tensor
    marks: Tensor
    tokens: Tensor
    patches: Tensor | None


def mark(inputs: Given, kind: Kind, edits: Edits | None = None) -> Marked:
    """Edit and truncate each row, and draw its token; return the thresholds with the tokens."""
    logits, controls, seeds, positions = inputs
    cuts = kind.startswith("cut")
    patches = None if edits is None else patch_logits(logits, *edits)
    facts, levels, marks, tokens = all_facts(logits, controls, cuts, patches)
    if kind != "greedy":
        lists = torch.empty(len(logits), 2, CAPACITY, dtype=torch.int64, device=logits.device)
        tables = logits, controls, levels, facts, marks, lists
        draw_listed(*tables, seeds, positions, tokens, False, patches)
        if cuts:  # rows whose candidates exceed a list's CAPACITY
            find_window(*tables, tokens, patches)
            draw_listed(*tables, seeds, positions, tokens, True, patches)
    if kind.endswith("inverse"):
        weights = block_weights(logits, controls, levels, marks, patches)
        invert_ids(logits, controls, levels, marks, weights, seeds, positions, tokens, patches)
    return Marked(levels, marks, tokens, patches)


def choose(inputs: Given, kind: Kind, edits: Edits | None = None) -> Tensor:
    """Return a token [R] int64 for each row; EMPTY or NON_FINITE for a failed one, as Sampler.

    Shapes and launches depend on the arguments' shapes and `kind` alone, so a CUDA graph can record them.
    """
    return mark(inputs, kind, edits).tokens

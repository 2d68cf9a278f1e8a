"""One choice: the kernels in order, as a function of tensors alone."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from processors.kernels.choice.bins import fill_bins, find_window
from processors.kernels.choice.cuts import collect, cut
from processors.kernels.choice.draws import draw_ids, survey
from processors.kernels.choice.facts import block_facts
from processors.kernels.choice.rows import row_facts

__all__ = ["Kind", "choose"]

Kind = Literal["greedy", "draw", "cut"]  # all rows are greedy, none is truncated, or some are


def choose(
    logits: Tensor,
    controls: Tensor,
    seeds: Tensor,
    positions: Tensor,
    *,
    kind: Kind,
    facts: Tensor | None = None,
) -> Tensor:
    """Return a token [R] int64 for each row of logits [R, V], negative ones as those of Sampler.

    controls [R, C]: see `Control`. All shapes follow from those of the arguments, so a CUDA graph can record
    the launches. `facts`: those of the blocks, if known.
    """
    facts = block_facts(logits, controls) if facts is None else facts
    levels, marks, bins = row_facts(facts, controls, kind == "cut")
    if kind == "cut":
        fill_bins(logits, controls, levels, facts, marks, bins)
        find_window(bins, controls, levels, marks)
        listed = collect(logits, controls, levels, facts, marks)
        cut(logits, controls, levels, listed, marks)
    ids = None if kind == "greedy" else survey(logits, controls, levels, marks, facts)
    tokens: Tensor = draw_ids(logits, controls, levels, marks, facts, ids, seeds, positions)
    return tokens

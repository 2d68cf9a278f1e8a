"""One choice: edit, truncate and draw for all rows, as a fixed sequence of kernels on tensors."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from processors.kernels.choice.bins import find_window
from processors.kernels.choice.draws import draw_listed
from processors.kernels.choice.inverse import block_weights, invert_ids
from processors.kernels.choice.parts import CAPACITY
from processors.kernels.choice.patches import patch_logits
from processors.kernels.choice.rows import all_facts

__all__ = ["Edits", "Given", "Kind", "Marked", "choose", "mark"]

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


def mark(given: Given, kind: Kind, edits: Edits | None = None) -> Marked:
    """Edit and truncate each row, and draw its token; return the thresholds with the tokens."""
    logits, controls, seeds, positions = given
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


def choose(given: Given, kind: Kind, edits: Edits | None = None) -> Tensor:
    """Return a token [R] int64 for each row; EMPTY or NON_FINITE for a failed one, as Sampler.

    Shapes and launches depend on the arguments' shapes and `kind` alone, so a CUDA graph can record them.
    """
    return mark(given, kind, edits).tokens

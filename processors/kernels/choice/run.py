"""One choice: the kernels in order, as a function of tensors alone."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from processors.kernels.choice.bins import fill_bins, find_window
from processors.kernels.choice.cuts import collect, cut
from processors.kernels.choice.draws import draw_ids, survey
from processors.kernels.choice.edits import edit_facts, edit_listed
from processors.kernels.choice.facts import block_facts
from processors.kernels.choice.inverse import block_weights, invert_ids
from processors.kernels.choice.rows import row_facts

__all__ = ["Edits", "Given", "Kind", "Marked", "choose", "draw", "edited", "mark"]

# All rows are greedy; none is truncated; some are. With "-inverse" some rows draw by inverse CDF.
Kind = Literal["greedy", "draw", "cut", "draw-inverse", "cut-inverse"]


class Edits(NamedTuple):
    """Masks and penalties: edits [R, E], lists [R, N] or None, bit masks [R, ceil(V / 32)] or None.

    values [R, N] are those of the lists, or None. The others are those of History and Rows; None without
    lists.
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
    """What a choice reads: logits [R, V], controls [R, C] (see `Control`), seeds and positions [R]."""

    logits: Tensor
    controls: Tensor
    seeds: Tensor
    positions: Tensor


def edited(logits: Tensor, controls: Tensor, edits: Edits) -> tuple[Tensor, Tensor]:
    """Return the edited logits [R, V] float32 and their facts. The logits are not changed."""
    new = torch.empty if edits.lists is None else torch.zeros
    work = new(logits.shape, dtype=torch.float32, device=logits.device)
    if edits.lists is not None:
        named = edits[Edits._fields.index("lists") :]
        edit_listed(logits, edits.edits, *named, work)
    return work, edit_facts(logits, controls, edits.edits, edits.masks, work, edits.lists is not None)


class Marked(NamedTuple):
    """A choice before its draw: logits [R, V] with masks and penalties, and the tables of parts.py."""

    logits: Tensor
    facts: Tensor
    levels: Tensor
    marks: Tensor


def mark(given: Given, kind: Kind, edits: Edits | None = None) -> Marked:
    """Edit the logits, and mark what the stages keep of each row."""
    logits, controls, _, _ = given
    if edits is None:
        facts = block_facts(logits, controls)
    else:
        logits, facts = edited(logits, controls, edits)
    cuts = kind.startswith("cut")
    levels, marks, bins = row_facts(facts, controls, cuts)
    if cuts:
        fill_bins(logits, controls, levels, facts, marks, bins)
        find_window(bins, controls, levels, marks)
        listed = collect(logits, controls, levels, facts, marks)
        cut(logits, controls, levels, listed, marks)
    return Marked(logits, facts, levels, marks)


def draw(given: Given, kind: Kind, marked: Marked) -> Tensor:
    """Return a token [R] int64 for each row among what is left."""
    logits, facts, levels, marks = marked
    _, controls, seeds, positions = given
    ids = None if kind == "greedy" else survey(logits, controls, levels, marks, facts)
    tokens: Tensor = draw_ids(logits, controls, levels, marks, facts, ids, seeds, positions)
    if kind.endswith("inverse"):
        weights = block_weights(logits, controls, levels, marks)
        invert_ids(logits, controls, levels, marks, weights, seeds, positions, tokens)
    return tokens


def choose(given: Given, kind: Kind, edits: Edits | None = None) -> Tensor:
    """Return a token [R] int64 for each row, negative ones as those of Sampler.

    All shapes follow from those of the arguments, so a CUDA graph can record the launches.
    """
    return draw(given, kind, mark(given, kind, edits))

"""How often a draft head agrees with its target, as it is configured and as its neighbours are: wrong taps, a
norm before or after, an order of fusion. Nothing else shows these faults, for texts stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gencli.core.request import Feed, Request, StepPlan
from gencli.errors import ModelError
from gencli.models.model_runner import LAST, HeadedRunner
from gencli.speculative.block_heads import BlockHead
from gencli.speculative.drafter import DraftAsk, Features
from gencli.speculative.head_drafter import make_lanes
from gencli.speculative.head_models import Eagle3Part, FusedPart, Head, MedusaHead

MOST_TOKENS, NUM_DRAFTS = 256, 4
_FIRST = 8  # tokens before the first draft
_LANES = 16  # places in the text that are drafted from at once

# What the check reads if no text is given.
TEXT = """\
The harbour was quiet when the last boat came in. An old woman stood at the end of the pier and counted the
boxes as they were lifted to the stones: twelve with fish, three with nets, and one that nobody had asked for.
"Who sent this?" she said. The captain did not know. He had found it on deck in the morning, tied with a red
string, and it was too light to hold anything that could be sold. They opened it at her table, by the lamp.
There was a map in it, drawn by hand, of an island that both of them knew well, and next to the lighthouse
somebody had made a small cross. The next day the two of them went there, with a spade and a loaf of bread.
They dug until noon, and found a second box. In the second box there was a letter, and the letter began with
her name. It said that the house by the mill had been hers for twenty years, that the key was with the baker,
and that the garden would need some work in the spring. She read it twice, folded it, and began to laugh.
"Then we should go and see the baker," she said, "before he closes." And so they did.
"""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Shares of places where draft k of a head is the token that its target finds most likely, for each k
    up to NUM_DRAFTS or the most that the head makes.

    `change` is what differs from the configuration, "" for the head as it is configured. Drafts are
    teacher-forced: each follows the text, not the drafts before it.
    """

    change: str
    shares: tuple[float, ...]


def agreements(head: Head, runner: HeadedRunner, tokens: Sequence[int]) -> list[Agreement]:
    """Return the agreement of a head with its target on a text, first as configured, then of its neighbours.

    Raises ModelError for a text that is too short. Uses lane 0 of the runner, which has to be empty.
    """
    tokens = tokens[: min(MOST_TOKENS, runner.spec.context)]
    if len(tokens) < _FIRST + NUM_DRAFTS + _LANES:
        raise ModelError(f"A text of {len(tokens)} tokens is too short to check a draft head.")
    variants = [("", head), *_neighbours(head, runner.spec.num_layers)]
    taps = sorted({tap for _, variant in variants for tap in variant.taps})
    states, best = _passed(runner, tokens, taps)
    return [
        Agreement(change, _agreement(variant, runner, tokens, states, best)) for change, variant in variants
    ]


def better(found: Sequence[Agreement]) -> Agreement:
    """Return the neighbour whose first draft agrees clearly more often than that of the head, else the head.

    Clearly: by two standard errors of the difference, and by 0.02.
    """
    configured = found[0]
    best, rate = max(found, key=lambda each: each.shares[0]), configured.shares[0]
    error = (2 * max(rate * (1 - rate), 0.01) / (MOST_TOKENS - _FIRST)) ** 0.5
    return best if best.shares[0] - rate > max(2 * error, 0.02) else configured


def _neighbours(head: Head, num_layers: int) -> Iterator[tuple[str, Head]]:
    """Yield each head that differs in one choice, with the choice."""
    if head.taps == (LAST,):
        yield "reads the states before the final norm", replace(head, taps=(num_layers,))
    else:
        for step in (-1, 1):
            taps = tuple([tap + step for tap in head.taps])
            if all(0 <= tap <= num_layers for tap in taps):
                yield f"reads states {', '.join(map(str, taps))}", replace(head, taps=taps)
    if isinstance(head, MedusaHead):
        return
    if isinstance(head, BlockHead):
        yield from _neighbouring_blocks(head)
        return
    first, changes = head.parts[0], dict[str, dict[str, Any]]()
    if isinstance(first, Eagle3Part):
        is_normed = not first.norm_before_residual
        sentence = f"norm_before_residual is {str(is_normed).lower()}"
        changes[sentence] = {"norm_before_residual": is_normed}
    if isinstance(first, FusedPart):
        is_first = not first.feature_first
        changes[f"fc reads the {'state' if is_first else 'embedding'} first"] = {"feature_first": is_first}
    if isinstance(first, Eagle3Part | FusedPart) and first.norm is not None:
        is_behind = not first.feeds_norm
        place = "behind" if is_behind else "before"
        changes[f"feeds back the state {place} its norm"] = {"feeds_norm": is_behind}
    for sentence, values in changes.items():
        yield sentence, replace(head, parts=tuple([replace(part, **values) for part in head.parts]))


def _neighbouring_blocks(head: BlockHead) -> Iterator[tuple[str, Head]]:
    """Yield each head that differs in one choice of how a block is read."""
    yield f"is {'not ' if head.is_causal else ''}causal", replace(head, is_causal=not head.is_causal)
    drafts = "masks alone" if head.samples_anchor else "the newest token and the masks"
    yield f"drafts from {drafts}", replace(head, samples_anchor=not head.samples_anchor)
    for mask_id in (head.mask_id - 1, head.mask_id + 1):
        if 0 <= mask_id < head.vocab_size:
            yield f"has the mask {mask_id}", replace(head, mask_id=mask_id)


def _passed(
    runner: HeadedRunner, tokens: Sequence[int], taps: Sequence[int]
) -> tuple[dict[int, Tensor], Tensor]:
    """Return the target's states [N, H] at the taps, and the token it finds most likely behind each [N]."""
    states, best = {tap: list[Tensor]() for tap in taps}, list[Tensor]()
    for start in range(0, len(tokens), 64):
        part = tuple(tokens[start : start + 64])
        plan = StepPlan((Feed(0, start, part, len(part)),))
        logits, inner = runner.forward_layers(plan, lanes=[0], taps=taps)
        best.append(logits.argmax(-1))
        for tap in taps:
            states[tap].append(inner.taps[tap].clone())
    runner.release(0)
    return {tap: torch.cat(parts) for tap, parts in states.items()}, torch.cat(best)


def _agreement(
    head: Head,
    runner: HeadedRunner,
    tokens: Sequence[int],
    states: dict[int, Tensor],
    best: Tensor,
) -> tuple[float, ...]:
    """Return the shares of places where the drafts of a head are the tokens `best` [N]."""
    lanes = make_lanes(head, runner.spec, max_lanes=_LANES)
    request = Request("check", tuple(tokens[:1]))
    hits, count, most = torch.zeros(NUM_DRAFTS, device=best.device), 0, NUM_DRAFTS
    ends = dict[int, int]()  # of the states that each slot has
    places = range(_FIRST, len(tokens) - NUM_DRAFTS)
    for slot in range(_LANES):
        lanes.admit(slot, request)
    for first in places[::_LANES]:
        slots = {slot: first + slot for slot in range(_LANES) if first + slot in places}
        parts = []
        for slot, place in slots.items():
            start, end = ends.get(slot, 0), place - 1
            rows = tuple([states[tap][start:end] for tap in head.taps])
            parts.append(Features(slot, tokens, start, end, rows))
            ends[slot] = end
        lanes.feed(parts)
        asks = [DraftAsk(slot, tokens[:place], NUM_DRAFTS) for slot, place in slots.items()]
        asks = lanes.catch_up(asks)
        fed = {ask.slot: lanes.missing(ask) for ask in asks}
        most = min(map(lanes.room, asks))
        for draft in range(most):
            logits = lanes.extend(fed)
            target = best[[slots[slot] - 1 + draft for slot in fed]]
            hits[draft] += (logits.argmax(-1) == target).sum()
            fed = {slot: (tokens[slots[slot] + draft],) for slot in fed}
        count += len(asks)
    return tuple([hit / count for hit in hits.tolist()[:most]])

"""Long-rope models (Phi-3 and its successors): lanes on either side of a switch of rotary factors.

The rotary module of such a model picks its factors, short or long, for a whole pass, by the longest position
in it. So a prompt would depend on its chunks and its neighbours. Here the length of the lane's own text picks
them, and a lane that grows beyond a switch is read anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gencli.core.step import Feed, StepPlan, rope_factors
from gencli.models.kv.lengths import LaneLengths
from processors.upload import upload

if TYPE_CHECKING:
    from gencli.models.kv.choose import Lanes

__all__ = ["LongRopeLanes", "factors_of", "rope_switches", "taking_factors", "use_lane_factors"]


def rope_switches(config: Any) -> tuple[int, ...]:
    """The lengths (tokens) beyond which a model of this configuration takes other rotary factors."""
    ropes = getattr(config, "rope_parameters", None) or {}
    each = [ropes] if "rope_type" in ropes else [rope for rope in ropes.values() if isinstance(rope, dict)]
    lengths = {rope["original_max_position_embeddings"] for rope in each if rope["rope_type"] == "longrope"}
    return tuple(sorted(lengths))


def use_lane_factors(model: Any) -> None:
    """Let the model's rotary modules take the factors that `taking_factors` names, where it names some."""
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        is_long = "longrope" in (kinds.values() if isinstance(kinds, dict) else [kinds])
        if is_long and not isinstance(module.forward, _Rotary):
            module.forward = _Rotary(module.forward)


def factors_of(feed: Feed, switches: tuple[int, ...]) -> int:
    """The factors that the feed's text is read with."""
    return rope_factors(max(feed.text_length, feed.start + len(feed.tokens)), switches)


@dataclass(frozen=True, slots=True)
class _Taken:
    """The factors of a pass: those that are taken at all, and by row or token [B, 1 or Q] if several are."""

    switches: tuple[int, ...]
    used: tuple[int, ...]
    places: Tensor | None


_taken: ContextVar[_Taken | None] = ContextVar("taken", default=None)


@contextmanager
def taking_factors(
    factors: Sequence[int],
    switches: tuple[int, ...],
    *,
    length: int,
    device: torch.device,
    is_row: bool = False,
) -> Iterator[None]:
    """Within, a pass takes these factors: one for each row, or with `is_row` for each token of its one row.

    `length` is that of the pass's longest lane, by which the model picks the factors itself.
    """
    used = tuple(sorted(set(factors)))
    is_own = used == (rope_factors(length, switches),)
    places = None
    if len(used) > 1:
        places = upload([factors], device) if is_row else upload([factors], device).T
    token = _taken.set(None if is_own else _Taken(switches, used, places))
    try:
        yield
    finally:
        _taken.reset(token)


class _Rotary:
    """The forward of a rotary module, which hands back cosines and sines [B, Q, D] of positions [B, Q]."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self._forward = forward

    def __call__(self, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        """What the module gives with its own choice of factors, or with those of the pass."""
        taken = _taken.get()
        if taken is None:
            return self._forward(x, position_ids, *args, **kwargs)
        parts = [self._with(number, taken, x, position_ids, *args, **kwargs) for number in taken.used]
        tables = [_chosen(taken, versions) for versions in zip(*parts, strict=True)]
        return tables[0] if len(tables) == 1 else tuple(tables)

    def _with(
        self, number: int, taken: _Taken, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, ...]:
        """One choice of factors: a further position makes the module take them, and is cut off again."""
        switches = taken.switches
        held = position_ids.clamp(max=switches[number] - 1) if number < len(switches) else position_ids
        longest = held.new_full((*held.shape[:-1], 1), switches[number - 1] if number else 0)
        made = self._forward(x, torch.cat([held, longest], -1), *args, **kwargs)
        return tuple(table[..., :-1, :] for table in (made if isinstance(made, tuple) else (made,)))


def _chosen(taken: _Taken, versions: Sequence[Tensor]) -> Tensor:
    table = versions[0]
    for number, other in zip(taken.used[1:], versions[1:], strict=True):
        assert taken.places is not None
        table = torch.where((taken.places == number)[..., None], other, table)
    return table


@dataclass(slots=True)
class _Held:
    """The tokens of a lane, and the factors that they were read with."""

    tokens: list[int] = field(default_factory=list)
    factors: int = 0


class LongRopeLanes:
    """Lanes whose logits are those of one fresh pass over the text so far, whatever was fed before.

    Where a feed's text is on the other side of a switch than what its lane holds, all of it is read anew.
    `lengths` are those of the inner lanes: a step may feed one of them twice.
    """

    def __init__(self, lanes: Lanes, lengths: LaneLengths, switches: tuple[int, ...]) -> None:
        self.can_rollback = lanes.can_rollback
        self._inner, self._lengths, self._switches = lanes, lengths, switches
        self._held: dict[int, _Held] = {}

    def forward(self, feeds: tuple[Feed, ...]) -> Tensor:
        """Feed the lanes; return the wanted rows [R, V] in feed order."""
        parts = [self._parts(feed) for feed in feeds]
        found: list[list[Tensor]] = [[] for _ in feeds]
        for number in range(max(map(len, parts))):
            fed = [(place, own[number]) for place, own in enumerate(parts) if number < len(own)]
            plan = StepPlan(tuple(self._next(feeds[place], part) for place, part in fed))
            rows = torch.split(self._inner.forward(plan.feeds), [feed.wanted for feed in plan.feeds])
            self._lengths.advance(plan)
            for (place, _), own in zip(fed, rows, strict=True):
                found[place].append(own)
        return torch.cat([rows for own in found for rows in own])

    def truncate(self, lane: int, length: int) -> None:
        """Cut the lane to `length` tokens, fewer than it holds."""
        self._inner.truncate(lane, length)
        self._lengths.truncate(lane, length)
        del self._held[lane].tokens[length:]

    def fork(self, source: int, target: int) -> None:
        """Copy one lane to an empty one."""
        self._inner.fork(source, target)
        self._lengths.fork(source, target)
        if source in self._held:
            held = self._held[source]
            self._held[target] = _Held([*held.tokens], held.factors)

    def release(self, lane: int) -> None:
        """Empty the lane."""
        self._inner.release(lane)
        self._lengths.release(lane)
        self._held.pop(lane, None)

    def free_cache(self) -> None:
        """Give back the memory that lanes held; all of them are empty."""
        self._inner.free_cache()

    def _parts(self, feed: Feed) -> list[tuple[int, int, int]]:
        """Factors, end and wanted rows of each part: rows on two sides of a switch are two parts."""
        end = feed.start + len(feed.tokens)
        if feed.wanted == 0:
            return [(factors_of(feed, self._switches), end, 0)]
        lengths = range(end - feed.wanted + 1, end + 1)
        sides = groupby(lengths, key=lambda length: rope_factors(length, self._switches))
        return [(factors, own[-1], len(own)) for factors, same in sides if (own := [*same])]

    def _next(self, feed: Feed, part: tuple[int, int, int]) -> Feed:
        """The feed of one part; its lane is emptied first if what it holds was read with other factors."""
        factors, end, wanted = part
        held = self._held.setdefault(feed.lane, _Held())
        if held.factors != factors and held.tokens:
            self._inner.release(feed.lane)
            self._lengths.release(feed.lane)
        start = self._lengths[feed.lane]
        held.tokens += feed.tokens[len(held.tokens) - feed.start : end - feed.start]
        held.factors = factors
        least = self._switches[factors - 1] + 1 if factors else 0
        tokens = tuple(held.tokens[start:])
        return replace(feed, start=start, tokens=tokens, wanted=wanted, text_length=least)

"""KV lanes of a draft model: their tokens, and how they catch up with the texts of the slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from gencli.core.prefixes import shared_length
from gencli.core.request import Request
from gencli.core.step import Feed, StepPlan
from gencli.models.base import ModelRunner
from gencli.models.prefix_lanes import PrefixLane, PrefixLanes
from gencli.speculative.base import DraftAsk

__all__ = ["DraftLanes", "Lane"]

_MAX_LAG = 64  # tokens; with a longer lag a lane prefills, and drafts in a later step
_CHUNK = 512  # prefill tokens per step


@dataclass(slots=True)
class Lane:
    """A slot's lane of the draft model; the first `num_confirmed` of its tokens are committed text.

    `is_fresh`: the lane holds no token of the current text.
    """

    cached: PrefixLane
    request: Request | None = None
    num_confirmed: int = 0
    is_fresh: bool = True

    @property
    def min_p(self) -> float:
        """The request's `min_p`: drafting stops at a token less probable than this."""
        return self.request.drafting.min_p if self.request else 0.0

    @property
    def has_independent_noise(self) -> bool:
        """Whether drafts are verified by rejection, and so are sampled with independent noise."""
        return self.request is not None and self.request.verification.policy == "rejection"

    @property
    def may_wait(self) -> bool:
        """Whether drafting may start later: a step without drafts changes no text."""
        return self.request is None or not self.request.drafts_decide


class DraftLanes:
    """The KV lanes of a draft model, one per slot. Tokens that a lane holds are not computed again.

    Before drafting, a lane is truncated to its common prefix with the text and fed the accepted tokens.
    Prompts are prefilled in chunks, one per step, after the drafts of other slots: on a GPU the target need
    not wait for them (see SideStreamRunner). Where `drafts_decide`, the whole prompt is prefilled before it.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner, self.spec, self._cache = runner, runner.spec, PrefixLanes(runner)
        self._lanes: dict[int, Lane] = {}
        self._waiting: list[DraftAsk] = []  # slots that prefill, and draft in a later step
        self.is_reading = False  # whether the last `catch_up` found a text to prefill

    def __getitem__(self, slot: int) -> Lane:
        return self._lanes[slot]

    def admit(self, slot: int, request: Request) -> None:
        """Start a sample. Tokens that earlier samples left in the lanes are reused where they match."""
        self._lanes[slot] = Lane(self._cache[slot], request)

    def release(self, slot: int) -> None:
        """End the sample of a slot."""
        self._lanes[slot].request = None

    def trim(self) -> None:
        """Empty all lanes and give back their memory."""
        self._cache.clear()
        self._lanes.clear()
        self._runner.free_cache()

    def catch_up(self, asks: Sequence[DraftAsk]) -> list[DraftAsk]:
        """Return the asks that can draft now: their lanes lack at least one and at most 64 tokens."""
        able = [ask for ask in asks if self._align(ask, asks)]
        behind = [ask for ask in able if self._lag(ask) > _MAX_LAG]
        self.is_reading = bool(behind)
        self._waiting = [ask for ask in behind if self._lanes[ask.slot].may_wait]
        while urgent := [ask for ask in behind if self._is_urgent(ask)]:
            self._read(urgent)
        waiting = {ask.slot for ask in self._waiting}
        return [ask for ask in able if ask.slot not in waiting]

    def read_on(self) -> None:
        """Prefill one chunk of the texts that draft in a later step. Call it after drafting."""
        self._read(self._waiting)

    def missing(self, ask: DraftAsk) -> tuple[int, ...]:
        """Tokens at the end of the text that its lane lacks."""
        return tuple(ask.tokens[len(self._lanes[ask.slot].cached) :])

    def extend(self, parts: Mapping[int, tuple[int, ...]]) -> torch.Tensor:
        """Feed tokens by slot. Return the logits [len(parts), V] after the last token of each."""
        return self._feed([Feed(slot, len(self._lanes[slot].cached), part) for slot, part in parts.items()])

    def _is_urgent(self, ask: DraftAsk) -> bool:
        return not self._lanes[ask.slot].may_wait and self._lag(ask) > _MAX_LAG

    def _lag(self, ask: DraftAsk) -> int:
        return len(ask.tokens) - len(self._lanes[ask.slot].cached)

    def _align(self, ask: DraftAsk, asks: Sequence[DraftAsk]) -> bool:
        """Truncate the lane to its common prefix with the text; whether the model can read the text."""
        text = ask.tokens
        if not 0 < len(text) < self.spec.context:
            return False
        lane = self._lanes[ask.slot]
        cached, last = lane.cached, len(text) - 1  # the last token is always fed
        if lane.is_fresh and not self._is_being_read(lane.request, asks):
            self._cache.reuse(cached, text[:last], lane.request.salt if lane.request else "")
        start, end = min(lane.num_confirmed, last), min(len(cached), last)
        lane.num_confirmed = start + shared_length(cached.tokens[start:end], [*text[start:end]])
        cached.truncate(lane.num_confirmed)
        lane.is_fresh = lane.is_fresh and not lane.num_confirmed
        return max(text[lane.num_confirmed :]) < self.spec.vocab_size

    def _is_being_read(self, request: Request | None, asks: Sequence[DraftAsk]) -> bool:
        """Whether another sample of the request is prefilling. Its lane is copied when it has finished."""
        behind = (self._lanes[ask.slot] for ask in asks if self._lag(ask) > _MAX_LAG)
        return any(lane.request is request and not lane.is_fresh for lane in behind)

    def _read(self, asks: Sequence[DraftAsk]) -> None:
        """Prefill up to one chunk in all, for at most one sample of each request."""
        left, feeds, reading = _CHUNK, list[Feed](), set[int]()
        for ask in asks:
            lane = self._lanes[ask.slot]
            if not left or id(lane.request) in reading:
                continue
            start = len(lane.cached)
            part = tuple(ask.tokens[start : min(start + left, len(ask.tokens) - 1)])
            feeds.append(Feed(ask.slot, start, part, num_logits=0, text_length=len(ask.tokens)))
            reading.add(id(lane.request))
            lane.is_fresh = False
            left -= len(part)
        if feeds:
            self._feed(feeds)

    def _feed(self, feeds: Sequence[Feed]) -> torch.Tensor:
        logits = self._runner.forward(StepPlan(tuple(feeds)))
        for feed in feeds:
            self._lanes[feed.lane].cached.extend(feed.tokens)
        return logits

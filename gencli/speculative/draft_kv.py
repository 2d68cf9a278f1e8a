"""KV lanes of a draft model: their tokens, and how they catch up with the texts of the slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from gencli.core.prefixes import shared_length
from gencli.core.request import Request
from gencli.core.step import Feed, StepPlan
from gencli.models.base import ModelRunner
from gencli.speculative.base import DraftAsk

__all__ = ["DraftLanes", "Lane"]

_MAX_LAG = 64  # tokens; with a longer lag a lane prefills, and drafts in a later step
_CHUNK = 512  # prefill tokens per step


@dataclass(slots=True)
class Lane:
    """A KV lane of the draft model and its tokens; the first `num_confirmed` of them are committed text.

    `num_prompt`: tokens of the request's prompt. `is_fresh`: the lane holds no token of the current text.
    """

    request: Request | None = None
    num_prompt: int = 0
    tokens: list[int] = field(default_factory=list)
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
    Samples of one request copy the lane of the prompt.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner, self.spec = runner, runner.spec
        self._lanes: dict[int, Lane] = {}
        self._waiting: list[DraftAsk] = []  # slots that prefill, and draft in a later step
        self.is_reading = False  # whether the last `catch_up` found a text to prefill

    def __getitem__(self, slot: int) -> Lane:
        return self._lanes[slot]

    def admit(self, slot: int, request: Request, num_prompt: int) -> None:
        """Start a sample. Tokens that an earlier sample left in the lane are reused where they match."""
        lane = self._lanes.setdefault(slot, Lane())
        lane.request, lane.num_prompt, lane.num_confirmed, lane.is_fresh = request, num_prompt, 0, True

    def release(self, slot: int) -> None:
        """End the sample of a slot."""
        self._lanes[slot].request = None

    def trim(self) -> None:
        """Empty all lanes and give back their memory."""
        for slot in self._lanes:
            self._runner.release(slot)
        self._lanes.clear()
        self._runner.free_cache()

    def catch_up(self, asks: Sequence[DraftAsk]) -> list[DraftAsk]:
        """Return the asks that can draft now: their lanes lack at least one and at most 64 tokens."""
        able = [ask for ask in asks if self._align(ask)]
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
        return tuple(ask.tokens[len(self._lanes[ask.slot].tokens) :])

    def extend(self, parts: Mapping[int, tuple[int, ...]]) -> torch.Tensor:
        """Feed tokens by slot. Return the logits [len(parts), V] after the last token of each."""
        return self._feed([Feed(slot, len(self._lanes[slot].tokens), part) for slot, part in parts.items()])

    def _is_urgent(self, ask: DraftAsk) -> bool:
        return not self._lanes[ask.slot].may_wait and self._lag(ask) > _MAX_LAG

    def _lag(self, ask: DraftAsk) -> int:
        return len(ask.tokens) - len(self._lanes[ask.slot].tokens)

    def _align(self, ask: DraftAsk) -> bool:
        """Truncate the lane to its common prefix with the text; whether the model can read the text."""
        text = ask.tokens
        if not 0 < len(text) < self.spec.context:
            return False
        lane = self._lane_with_copy(ask.slot)
        limit = min(len(lane.tokens), len(text) - 1)  # the last token is always fed
        num_confirmed = min(lane.num_confirmed, limit)
        same = num_confirmed + shared_length(lane.tokens[num_confirmed:limit], [*text[num_confirmed:limit]])
        if same < len(lane.tokens):
            self._runner.truncate(ask.slot, same)
            del lane.tokens[same:]
        lane.num_confirmed, lane.is_fresh = same, lane.is_fresh and not same
        return max(text[same:]) < self.spec.vocab_size

    def _lane_with_copy(self, slot: int) -> Lane:
        """The slot's lane. A fresh one is copied from another sample of the request, if any."""
        lane = self._lanes[slot]
        if not lane.is_fresh or lane.request is None or lane.request.n == 1:
            return lane
        siblings = [s for s, other in self._lanes.items() if other.request is lane.request and s != slot]
        ahead = max(siblings, key=lambda s: self._lanes[s].num_confirmed, default=slot)
        if self._lanes[ahead].num_confirmed > lane.num_prompt // 2:
            self._runner.fork(ahead, slot)
            lane.tokens = [*self._lanes[ahead].tokens]
        return lane

    def _read(self, asks: Sequence[DraftAsk]) -> None:
        """Prefill up to one chunk in all, for at most one sample of each request."""
        left, feeds, reading = _CHUNK, list[Feed](), set[int]()
        for ask in asks:
            lane = self._lanes[ask.slot]
            if not left or id(lane.request) in reading:
                continue
            start = len(lane.tokens)
            part = tuple(ask.tokens[start : min(start + left, len(ask.tokens) - 1)])
            feeds.append(Feed(ask.slot, start, part, num_logits=0, text_length=len(ask.tokens)))
            reading.add(id(lane.request))
            left -= len(part)
        if feeds:
            self._feed(feeds)

    def _feed(self, feeds: Sequence[Feed]) -> torch.Tensor:
        logits = self._runner.forward(StepPlan(tuple(feeds)))
        for feed in feeds:
            self._lanes[feed.lane].tokens += feed.tokens
        return logits

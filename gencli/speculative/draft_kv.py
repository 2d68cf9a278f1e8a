"""The lanes of a draft model: what each of them holds, and how it comes to hold the text of its slot."""

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

_LAG = 64  # tokens; a lane that is farther behind reads, and drafts in a later step
_CHUNK = 512  # tokens that are read in a step


@dataclass(slots=True)
class Lane:
    """A lane of the draft: the tokens it holds, of which the first `sure` are committed for good.

    `num_prompt` are the tokens of the request's prompt; a lane that is fresh holds
    nothing of the text yet.
    """

    request: Request | None = None
    num_prompt: int = 0
    tokens: list[int] = field(default_factory=list)
    sure: int = 0
    is_fresh: bool = True

    @property
    def least(self) -> float:
        """The probability below which drafting stops."""
        return self.request.drafting.min_p if self.request else 0.0

    @property
    def is_apart(self) -> bool:
        """Whether drafts are verified by rejection, and so may be drawn apart from the target."""
        return self.request is not None and self.request.verification.policy == "rejection"

    @property
    def may_wait(self) -> bool:
        """Whether a step without drafts changes no text."""
        return self.request is None or not self.request.drafts_decide


class DraftLanes:
    """A draft model's lanes, which are the slots; what they have read is never read again.

    Before it drafts a lane is shortened to what it has in common with the text, and reads what was accepted.
    A prompt is read in chunks, a step's worth at a time and behind the drafts of the others, so that on a GPU
    the target need not wait (see SideStreamRunner); at once where drafts decide the text. Samples of one
    request copy the prompt's lane.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner, self.spec = runner, runner.spec
        self._lanes: dict[int, Lane] = {}
        self._waiting: list[DraftAsk] = []  # those that read, and draft in a later step
        self.is_reading = False  # the last time, a text that will not be read again

    def __getitem__(self, slot: int) -> Lane:
        return self._lanes[slot]

    def admit(self, slot: int, request: Request, num_prompt: int) -> None:
        """The lane may hold what an earlier sample left; of that it keeps what is the same."""
        lane = self._lanes.setdefault(slot, Lane())
        lane.request, lane.num_prompt, lane.sure, lane.is_fresh = request, num_prompt, 0, True

    def release(self, slot: int) -> None:
        """The sample has left the slot."""
        self._lanes[slot].request = None

    def trim(self) -> None:
        """Empty all lanes and give back their memory."""
        for slot in self._lanes:
            self._runner.release(slot)
        self._lanes.clear()
        self._runner.free_cache()

    def catch_up(self, asks: Sequence[DraftAsk]) -> list[DraftAsk]:
        """Those whose lanes lack only the end of the text now, one token of it at the least."""
        able = [ask for ask in asks if self._align(ask)]
        behind = [ask for ask in able if self._lag(ask) > _LAG]
        self.is_reading = bool(behind)
        self._waiting = [ask for ask in behind if self._lanes[ask.slot].may_wait]
        while urgent := [ask for ask in behind if self._is_urgent(ask)]:
            self._read(urgent)
        waiting = {ask.slot for ask in self._waiting}
        return [ask for ask in able if ask.slot not in waiting]

    def read_on(self) -> None:
        """Read, after the others have drafted, a chunk of the texts that draft in a later step."""
        self._read(self._waiting)

    def missing(self, ask: DraftAsk) -> tuple[int, ...]:
        """The end of the text, which its lane lacks."""
        return tuple(ask.tokens[len(self._lanes[ask.slot].tokens) :])

    def extend(self, parts: Mapping[int, tuple[int, ...]]) -> torch.Tensor:
        """The logits [len(parts), V] behind these tokens, which the lanes hold from now on."""
        return self._feed([Feed(slot, len(self._lanes[slot].tokens), part) for slot, part in parts.items()])

    def _is_urgent(self, ask: DraftAsk) -> bool:
        return not self._lanes[ask.slot].may_wait and self._lag(ask) > _LAG

    def _lag(self, ask: DraftAsk) -> int:
        return len(ask.tokens) - len(self._lanes[ask.slot].tokens)

    def _align(self, ask: DraftAsk) -> bool:
        """Let the lane hold nothing but the text's beginning; whether the draft can read the text."""
        text = ask.tokens
        if not 0 < len(text) < self.spec.context:
            return False
        lane = self._borrowed(ask.slot)
        limit = min(len(lane.tokens), len(text) - 1)  # the last token is always fed
        sure = min(lane.sure, limit)
        same = sure + shared_length(lane.tokens[sure:limit], [*text[sure:limit]])
        if same < len(lane.tokens):
            self._runner.truncate(ask.slot, same)
            del lane.tokens[same:]
        lane.sure, lane.is_fresh = same, lane.is_fresh and not same
        return max(text[same:]) < self.spec.vocab_size

    def _borrowed(self, slot: int) -> Lane:
        """The slot's lane; one that is fresh begins as a copy of a sibling's that has read the prompt."""
        lane = self._lanes[slot]
        if not lane.is_fresh or lane.request is None or lane.request.n == 1:
            return lane
        siblings = [s for s, other in self._lanes.items() if other.request is lane.request and s != slot]
        ahead = max(siblings, key=lambda s: self._lanes[s].sure, default=slot)
        if self._lanes[ahead].sure > lane.num_prompt // 2:
            self._runner.fork(ahead, slot)
            lane.tokens = [*self._lanes[ahead].tokens]
        return lane

    def _read(self, asks: Sequence[DraftAsk]) -> None:
        """Read on in texts, one of each request's at the most, while the chunk lasts."""
        left, feeds, reading = _CHUNK, list[Feed](), set[int]()
        for ask in asks:
            lane = self._lanes[ask.slot]
            if not left or id(lane.request) in reading:
                continue
            start = len(lane.tokens)
            part = tuple(ask.tokens[start : min(start + left, len(ask.tokens) - 1)])
            feeds.append(Feed(ask.slot, start, part, wanted=0, text_length=len(ask.tokens)))
            reading.add(id(lane.request))
            left -= len(part)
        if feeds:
            self._feed(feeds)

    def _feed(self, feeds: Sequence[Feed]) -> torch.Tensor:
        logits = self._runner.forward(StepPlan(tuple(feeds)))
        for feed in feeds:
            self._lanes[feed.lane].tokens += feed.tokens
        return logits

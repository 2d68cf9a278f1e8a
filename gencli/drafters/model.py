"""A second, smaller model guesses. Its lanes are the slots, and what it has read is never read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from gencli.drafters.base import DraftAsk, Drafter, Drawn
from gencli.drafters.chooser import Choice, Chooser
from gencli.models.base import ModelRunner
from gencli.plan import Feed, StepPlan
from gencli.prefixes import shared_length
from gencli.request import Request

__all__ = ["ModelDrafter"]

_LAG = 64  # tokens; a lane that is farther behind reads, and drafts in a later step
_CHUNK = 512  # tokens that are read in a step


@dataclass(slots=True)
class _Lane:
    """A lane of the draft: the tokens it holds, of which the first `sure` are committed ones."""

    request: Request | None = None
    tokens: list[int] = field(default_factory=list)
    sure: int = 0

    @property
    def least(self) -> float:
        """The probability below which drafting stops."""
        return self.request.drafting.min_p if self.request else 0.0

    @property
    def is_apart(self) -> bool:
        """Whether drafts are drawn apart from the target, to be verified by rejection."""
        return self.request is not None and self.request.verification.policy == "rejection"

    @property
    def may_wait(self) -> bool:
        """Whether a step without drafts changes no text."""
        return self.request is None or not self.request.drafts_decide


class ModelDrafter(Drafter):
    """Drafts with a model of the same vocabulary, one pass for each place and all slots that speculate.

    It chooses as the request would: with the request's stages, its draw and its noise (see Chooser). Before
    it drafts it shortens its lane to what it has in common with the text, and reads what was accepted; a
    prompt is read in chunks, a step's worth at a time, or at once where drafts decide the text. Samples of
    one request copy the prompt's lane.
    """

    passes = True

    def __init__(self, runner: ModelRunner) -> None:
        self._runner, self._spec = runner, runner.spec
        self._lanes: dict[int, _Lane] = {}

    def bind(self, chooser: Chooser) -> None:
        """See Drafter."""
        self._choose = chooser

    def admit(self, slot: int, request: Request) -> None:
        """The lane may hold what an earlier sample left; of that it keeps what is the same."""
        lane = self._lanes.setdefault(slot, _Lane())
        lane.request, lane.sure = request, 0

    def release(self, slot: int) -> None:
        """See Drafter."""
        self._lanes[slot].request = None

    def trim(self) -> None:
        """See Drafter."""
        for slot in self._lanes:
            self._runner.release(slot)
        self._lanes.clear()
        self._runner.trim()

    @torch.inference_mode()
    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        """See Drafter."""
        able = [ask for ask in asks if self._align(ask)]
        behind = [ask for ask in able if self._lag(ask) > _LAG]
        self.is_reading = bool(behind)
        self._read(behind)
        while urgent := [ask for ask in behind if self._is_urgent(ask)]:
            self._read(urgent)
        waiting = {ask.slot for ask in behind if self._lanes[ask.slot].may_wait}
        runs = self._draft([ask for ask in able if ask.slot not in waiting])
        return [runs.get(ask.slot, ()) for ask in asks]

    def _is_urgent(self, ask: DraftAsk) -> bool:
        return not self._lanes[ask.slot].may_wait and self._lag(ask) > _LAG

    def _lag(self, ask: DraftAsk) -> int:
        return len(ask.tokens) - len(self._lanes[ask.slot].tokens)

    def _align(self, ask: DraftAsk) -> bool:
        """Let the lane hold nothing but the text's beginning; whether the draft can read the text."""
        text = ask.tokens
        if len(text) >= self._spec.context:
            return False
        lane = self._borrowed(ask.slot)
        limit = min(len(lane.tokens), len(text) - 1)  # the last token is always fed
        sure = min(lane.sure, limit)
        same = sure + shared_length(lane.tokens[sure:limit], [*text[sure:limit]])
        if same < len(lane.tokens):
            self._runner.keep(ask.slot, same)
            del lane.tokens[same:]
        lane.sure = same
        return max(text[same:]) < self._spec.vocab_size

    def _borrowed(self, slot: int) -> _Lane:
        """The slot's lane; one that is fresh begins as a copy of a sibling's that has read the prompt."""
        lane = self._lanes[slot]
        if lane.sure or lane.request is None or lane.request.n == 1:
            return lane
        siblings = [s for s, other in self._lanes.items() if other.request is lane.request and s != slot]
        ahead = max(siblings, key=lambda s: self._lanes[s].sure, default=slot)
        if self._lanes[ahead].sure > len(lane.request.prompt_ids) // 2:
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
            feeds.append(Feed(ask.slot, start, part, wanted=0))
            reading.add(id(lane.request))
            left -= len(part)
        if feeds:
            self._feed(feeds)

    def _draft(self, asks: Sequence[DraftAsk]) -> dict[int, Sequence[int]]:
        """Runs by slot: a pass for the first place of all, one for the second of those that go on..."""
        room = {ask.slot: min(ask.most, self._spec.context - len(ask.tokens)) for ask in asks}
        runs: dict[int, list[int]] = {ask.slot: [] for ask in asks}
        chosen: dict[int, list[Choice]] = {ask.slot: [] for ask in asks}
        fresh = {ask.slot: tuple(ask.tokens[len(self._lanes[ask.slot].tokens) :]) for ask in asks}
        while fresh:
            feeds = [Feed(slot, len(self._lanes[slot].tokens), part) for slot, part in fresh.items()]
            logits = self._feed(feeds)
            slots = list(fresh)
            lanes, drafts = [self._lanes[slot] for slot in slots], [runs[slot] for slot in slots]
            least, apart = [lane.least for lane in lanes], [lane.is_apart for lane in lanes]
            choices = self._choose(logits, slots, drafts, least=least, apart=apart)
            fresh = {}
            for slot, choice in zip(slots, choices, strict=True):
                if choice.token is None:
                    continue
                runs[slot].append(choice.token)
                chosen[slot].append(choice)
                is_readable = choice.token < self._spec.vocab_size
                if len(runs[slot]) < room[slot] and is_readable and choice.token not in self._choose.eos_ids:
                    fresh[slot] = (choice.token,)
        return {
            slot: _drawn(run, chosen[slot]) if self._lanes[slot].is_apart else run
            for slot, run in runs.items()
        }

    def _feed(self, feeds: Sequence[Feed]) -> torch.Tensor:
        logits = self._runner.forward(StepPlan(tuple(feeds)))
        for feed in feeds:
            self._lanes[feed.lane].tokens += feed.tokens
        return logits


def _drawn(run: Sequence[int], choices: Sequence[Choice]) -> Drawn:
    logits = tuple(choice.logits for choice in choices if choice.logits is not None)
    return Drawn(tuple(run), logits, tuple(choice.probability for choice in choices))

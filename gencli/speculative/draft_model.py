"""A second, smaller model guesses. Its lanes are the slots, and what it has read is never read again."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gencli.core.request import Request
from gencli.models.base import ModelRunner
from gencli.speculative.base import DraftAsk, Drafter, Drawn
from gencli.speculative.draft_kv import DraftLanes
from gencli.speculative.draft_sampler import Choice, DraftSampler

__all__ = ["ModelDrafter"]


class ModelDrafter(Drafter):
    """Drafts with a model of the same vocabulary, one pass for each place and all slots that speculate.

    It chooses as the request would: with its stages, its draw and its noise (see DraftSampler). What
    it reads, and when, is for its lanes (see DraftLanes).
    """

    passes = True

    def __init__(self, runner: ModelRunner) -> None:
        self._lanes = DraftLanes(runner)

    def bind(self, chooser: DraftSampler) -> None:
        """See Drafter."""
        self._choose = chooser

    def admit(self, slot: int, request: Request) -> None:
        """See Drafter."""
        self._lanes.admit(slot, request, len(request.prompt_ids))

    def release(self, slot: int) -> None:
        """See Drafter."""
        self._lanes.release(slot)

    def trim(self) -> None:
        """See Drafter."""
        self._lanes.trim()

    @torch.inference_mode()
    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        """See Drafter."""
        runs = self._draft(self._lanes.catch_up(asks))
        self._lanes.read_on()
        self.is_reading = self._lanes.is_reading
        return [runs.get(ask.slot, ()) for ask in asks]

    def _draft(self, asks: Sequence[DraftAsk]) -> dict[int, Sequence[int]]:
        """Runs by slot: a pass for the first place of all, one for the second of those that go on..."""
        spec = self._lanes.spec
        room = {ask.slot: min(ask.most, spec.limit(len(ask.tokens)) - len(ask.tokens)) for ask in asks}
        runs: dict[int, list[int]] = {ask.slot: [] for ask in asks}
        chosen: dict[int, list[Choice]] = {ask.slot: [] for ask in asks}
        fresh = {ask.slot: self._lanes.missing(ask) for ask in asks}
        while fresh:
            logits = self._lanes.extend(fresh)
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
                is_readable = choice.token < spec.vocab_size
                if len(runs[slot]) < room[slot] and is_readable and choice.token not in self._choose.eos_ids:
                    fresh[slot] = (choice.token,)
        return {
            slot: _drawn(run, chosen[slot]) if self._lanes[slot].is_apart else run
            for slot, run in runs.items()
        }


def _drawn(run: Sequence[int], choices: Sequence[Choice]) -> Drawn:
    logits = tuple(choice.logits for choice in choices if choice.logits is not None)
    return Drawn(tuple(run), logits, tuple(choice.probability for choice in choices))

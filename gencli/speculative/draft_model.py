"""Draft tokens from a smaller model of the same vocabulary."""

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
    """Drafts with a model of the same vocabulary: one forward pass per position, for all slots together.

    Tokens are sampled as in the target: with the request's stages, draw and noise (see DraftSampler).
    DraftLanes keeps the KV cache and decides when to prefill.
    """

    is_autoregressive = True

    def __init__(self, runner: ModelRunner) -> None:
        self._lanes = DraftLanes(runner)

    def bind(self, chooser: DraftSampler) -> None:
        self._choose = chooser
        if (graphs := self._lanes.spec.graphs) is not None:
            graphs.notices = chooser.notices

    def admit(self, slot: int, request: Request) -> None:
        self._lanes.admit(slot, request)

    def release(self, slot: int) -> None:
        self._lanes.release(slot)

    def trim(self) -> None:
        self._lanes.trim()

    @torch.inference_mode()
    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        runs = self._draft(self._lanes.catch_up(asks))
        self._lanes.read_on()
        self.is_reading = self._lanes.is_reading
        return [runs.get(ask.slot, ()) for ask in asks]

    def _draft(self, asks: Sequence[DraftAsk]) -> dict[int, Sequence[int]]:
        """Draft tokens by slot. Each forward pass adds one position to all runs that continue."""
        spec = self._lanes.spec
        room = {ask.slot: min(ask.most, spec.limit(len(ask.tokens)) - len(ask.tokens)) for ask in asks}
        runs: dict[int, list[int]] = {ask.slot: [] for ask in asks}
        choices_by_slot: dict[int, list[Choice]] = {ask.slot: [] for ask in asks}
        to_feed = {ask.slot: self._lanes.missing(ask) for ask in asks}
        while to_feed:
            logits = self._lanes.extend(to_feed)
            slots = list(to_feed)
            lanes, drafts = [self._lanes[slot] for slot in slots], [runs[slot] for slot in slots]
            min_p, apart = [lane.min_p for lane in lanes], [lane.has_independent_noise for lane in lanes]
            choices = self._choose(logits, slots, drafts, least=min_p, apart=apart)
            to_feed = {}
            for slot, choice in zip(slots, choices, strict=True):
                if choice.token is None:
                    continue
                runs[slot].append(choice.token)
                choices_by_slot[slot].append(choice)
                is_readable = choice.token < spec.vocab_size
                if len(runs[slot]) < room[slot] and is_readable and choice.token not in self._choose.eos_ids:
                    to_feed[slot] = (choice.token,)
        return {
            slot: _drawn(run, choices_by_slot[slot]) if self._lanes[slot].has_independent_noise else run
            for slot, run in runs.items()
        }


def _drawn(run: Sequence[int], choices: Sequence[Choice]) -> Drawn:
    logits = tuple(choice.logits for choice in choices if choice.logits is not None)
    return Drawn(tuple(run), logits, tuple(choice.probability for choice in choices))

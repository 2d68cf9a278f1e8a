"""What a request would choose from the logits of a draft: its own stages, its own draw, its own noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gencli.models.width import as_wide
from processors.base import Noise
from processors.history import History
from processors.kernels.softmax import token_probability
from processors.pipeline import Pipeline
from processors.rng import Stream, row_keys
from processors.rows import Rows
from processors.sampler import Sampler
from processors.upload import upload

__all__ = ["Choice", "DraftSampler"]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A token, and how likely it was; None where nothing could be chosen, or nothing probable was.

    `logits` [V] are what it was drawn from, if it was drawn apart from the target.
    """

    token: int | None
    probability: float
    logits: Tensor | None = None


class DraftSampler:
    """Chooses from a draft's logits as the engine chooses from the target's.

    It looks at the committed state of the slots and changes none of it, as stages only look in apply. Draft
    and target draw with the same noise at the same position, so that they agree wherever their
    distributions do. Only where drafts are verified by rejection they draw `apart`: that a draft was dropped
    for being improbable would tell what the target draws in its place.
    """

    def __init__(self, pipeline: Pipeline, sampler: Sampler, history: History) -> None:
        self._pipeline, self._sampler, self._history = pipeline, sampler, history
        self.width, self.eos_ids = pipeline.env.width, pipeline.env.eos_ids
        self.device, self.notices = pipeline.env.device, pipeline.notices

    def __call__(
        self,
        logits: Tensor,
        slots: Sequence[int],
        drafts: Sequence[Sequence[int]],
        *,
        least: Sequence[float],
        apart: Sequence[bool],
    ) -> list[Choice]:
        """For logits [Q, W], a row for what comes behind each slot's committed tokens and its drafts so far.

        W may differ from the target's width: what the draft lacks it cannot choose, and of what it has
        more nothing is chosen. Tokens less likely than `least` are dropped; `apart` says which rows draw with
        noise of their own. Where neither asks for them, probabilities are 1.
        """
        rows = self._last_rows(slots, drafts)
        processed = self._pipeline(as_wide(logits, self.width, self._history.device), rows)
        tokens = self._sampler(processed, _apart(rows, apart) if any(apart) else rows)
        cut = [one if own else 0.0 for one, own in zip(least, apart, strict=True)]
        processed = _without_improbable(processed, cut) if any(cut) else processed
        chances = torch.ones(len(tokens))
        if any(least) or any(apart):
            chances = token_probability(processed, tokens.clamp(min=0))
        pairs = torch.stack([tokens.double(), chances.to(tokens.device).double()]).tolist()
        return [
            Choice(int(token) if token >= 0 and chance >= low else None, chance, row if own else None)
            for token, chance, low, own, row in zip(*pairs, least, apart, processed, strict=True)
        ]

    def noise(self, slot: int) -> Noise | None:
        """What the slot's draw will add to the logits of a few ids; None if it adds nothing to each."""
        return self._sampler.noise(slot, self._history.seed(slot))

    def _last_rows(self, slots: Sequence[int], drafts: Sequence[Sequence[int]]) -> Rows:
        rows = Rows.build(self._history, slots, drafts)
        return self._pipeline.prepare(rows.select(rows.lasts))


def _apart(rows: Rows, apart: Sequence[bool]) -> Rows:
    """The rows as they draw: these with noise that is not the target's."""
    keys = row_keys(rows.seeds, torch.zeros_like(rows.positions), Stream.DRAFT)
    mine = upload(apart, keys.device)
    return replace(rows, seeds=torch.where(mine, keys, rows.seeds))


def _without_improbable(logits: Tensor, least: Sequence[float]) -> Tensor:
    """The logits [Q, V] of what is not dropped: what a token was drawn from, given that it was not."""
    low = upload(least, logits.device)[:, None]
    return logits.masked_fill(logits.softmax(dim=-1) < low, -torch.inf)

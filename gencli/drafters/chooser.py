"""What a request would choose from the logits of a draft: its own stages, its own draw, its own noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from processors.history import History
from processors.kernels.softmax import token_probability
from processors.pipeline import Pipeline
from processors.rng import Stream, row_keys
from processors.rows import Rows
from processors.sampler import Sampler

__all__ = ["Choice", "Chooser"]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A token and how likely it was after all stages; None where nothing could be chosen.

    `logits` [V] are what it was drawn from, if it was drawn apart from the target.
    """

    token: int | None
    probability: float
    logits: Tensor | None = None


class Chooser:
    """Chooses from a draft's logits as the engine chooses from the target's.

    It looks at the committed state of the slots and changes none of it, as stages only look in apply. Draft
    and target draw with the same noise at the same position, so that they agree wherever their
    distributions do. Only where drafts are verified by rejection they draw `apart`: what becomes of a draft
    that is dropped for being improbable would tell of the token that the target draws in its place.
    """

    def __init__(self, pipeline: Pipeline, sampler: Sampler, history: History) -> None:
        self._pipeline, self._sampler, self._history = pipeline, sampler, history
        self.width, self.eos_ids = pipeline.env.width, pipeline.env.eos_ids

    def __call__(
        self,
        logits: Tensor,
        slots: Sequence[int],
        drafts: Sequence[Sequence[int]],
        *,
        apart: Sequence[bool] = (),
        probable: bool = True,
    ) -> list[Choice]:
        """For logits [Q, W], a row for what comes behind each slot's committed tokens and its drafts so far.

        W may differ from the target's width: what the draft lacks it cannot choose, and of what it has
        more nothing is chosen. `apart` says which rows draw with noise of their own (none by default),
        `probable` whether probabilities are wanted; they are 1 otherwise.
        """
        rows = self._last_rows(slots, drafts)
        processed = self._pipeline(self._fit(logits), rows)
        apart = apart or (False,) * len(slots)
        tokens = self._sampler(processed, _apart(rows, apart) if any(apart) else rows)
        chances = torch.ones(len(tokens))
        if probable:
            chances = token_probability(processed, tokens.clamp(min=0))
        pairs = torch.stack([tokens.double(), chances.to(tokens.device).double()]).tolist()
        sources = [row if own else None for row, own in zip(processed, apart, strict=True)]
        return [Choice(int(t) if t >= 0 else None, p, x) for t, p, x in zip(*pairs, sources, strict=True)]

    def _last_rows(self, slots: Sequence[int], drafts: Sequence[Sequence[int]]) -> Rows:
        rows = Rows.build(self._history, slots, drafts)
        last, place = [], -1
        for count in rows.counts:
            place += count
            last.append(place)
        return self._pipeline.prepare(rows.select(last))

    def _fit(self, logits: Tensor) -> Tensor:
        logits = logits[:, : self.width].to(self._history.device)
        missing = self.width - logits.shape[1]
        return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf) if missing else logits


def _apart(rows: Rows, apart: Sequence[bool]) -> Rows:
    """The rows as they draw: these with noise that is not the target's."""
    keys = row_keys(rows.seeds, torch.zeros_like(rows.positions), Stream.DRAFT)
    mine = torch.tensor(apart).to(keys.device, non_blocking=True)
    return replace(rows, seeds=torch.where(mine, keys, rows.seeds))

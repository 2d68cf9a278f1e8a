"""What a request would choose from the logits of a draft: its own stages, its own draw, its own noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import Sampler

__all__ = ["Choice", "Chooser"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A token and how likely it was after all stages; None where nothing could be chosen."""

    token: int | None
    probability: float


class Chooser:
    """Chooses from a draft's logits as the engine chooses from the target's.

    It looks at the committed state of the slots and changes none of it, as stages only look in apply. Draft
    and target draw with the same noise at the same position, so that they agree wherever their
    distributions do.
    """

    def __init__(self, pipeline: Pipeline, sampler: Sampler, history: History) -> None:
        self._pipeline, self._sampler, self._history = pipeline, sampler, history
        self.width, self.eos_ids = pipeline.env.width, pipeline.env.eos_ids

    def __call__(
        self, logits: Tensor, slots: Sequence[int], drafts: Sequence[Sequence[int]], *, probable: bool = True
    ) -> list[Choice]:
        """For logits [Q, W], a row for what comes behind each slot's committed tokens and its drafts so far.

        W may differ from the target's width: what the draft lacks it cannot choose, and of what it has
        more nothing is chosen. `probable` says whether probabilities are wanted; they are 1 otherwise.
        """
        rows = self._last_rows(slots, drafts)
        processed = self._pipeline(self._fit(logits), rows)
        tokens = self._sampler(processed, rows)
        chances = torch.ones(len(tokens))
        if probable:
            chosen = processed.gather(1, tokens.clamp(min=0)[:, None]).squeeze(1)
            chances = (chosen - processed.logsumexp(dim=-1)).exp()
        pairs = torch.stack([tokens.double(), chances.to(tokens.device).double()]).tolist()
        return [Choice(int(t) if t >= 0 else None, p) for t, p in zip(*pairs, strict=True)]

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

"""Sampling from draft logits as the request samples: with its stages, its draw and its noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gencli.models.base import as_wide
from processors.base import Noise
from processors.draw_on_device import sampled
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
    """A draft token and its probability; token None if none could be chosen or it was too improbable.

    `logits` [V]: the distribution it was sampled from, if it was sampled with independent noise.
    """

    token: int | None
    probability: float
    logits: Tensor | None = None


class DraftSampler:
    """Samples from draft logits as the engine samples from the target's.

    Reads the committed state of the slots and changes none of it. Draft and target use the same noise at the
    same position, so that they agree wherever their distributions do. Under rejection sampling their noise
    must be independent (`apart`): with shared noise, dropping a low-probability draft would bias the
    replacement.
    """

    def __init__(self, pipeline: Pipeline, sampler: Sampler, history: History) -> None:
        self._pipeline, self._sampler, self._history = pipeline, sampler, history
        self.width, self.eos_ids = pipeline.env.vocab_size, pipeline.env.eos_ids
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
        """Choose a token from each row of logits [Q, W]; row q follows `drafts[q]` in `slots[q]`.

        W may differ from the target's vocabulary size: ids that only one of the models has are not chosen.
        `least`: minimum probability by row; a less probable token becomes None. `apart`: rows that use
        independent noise. Without either, probabilities are not computed and are 1.
        """
        rows = self._last_rows(slots, drafts)
        processed = self._pipeline(as_wide(logits, self.width, self._history.device), rows)
        tokens = sampled(
            self._sampler, processed, _with_independent_noise(rows, apart) if any(apart) else rows
        )
        min_p = [one if own else 0.0 for one, own in zip(least, apart, strict=True)]
        processed = _mask_improbable(processed, min_p) if any(min_p) else processed
        probabilities = torch.ones(len(tokens), device=tokens.device)
        if any(least) or any(apart):
            probabilities = token_probability(processed, tokens.clamp(min=0))
        pairs = torch.stack([tokens.double(), probabilities.double()]).tolist()
        return [
            Choice(int(token) if token >= 0 and chance >= low else None, chance, row if own else None)
            for token, chance, low, own, row in zip(*pairs, least, apart, processed, strict=True)
        ]

    def noise(self, slot: int) -> Noise | None:
        """The noise that the slot's draw will add to logits; None for a draw without additive noise."""
        return self._sampler.noise(slot, self._history.seed(slot))

    def _last_rows(self, slots: Sequence[int], drafts: Sequence[Sequence[int]]) -> Rows:
        rows = Rows.build(self._history, slots, drafts)
        return self._pipeline.prepare(rows.select(rows.lasts))


def _with_independent_noise(rows: Rows, apart: Sequence[bool]) -> Rows:
    """The rows, with noise independent of the target's where `apart`."""
    keys = row_keys(rows.seeds, torch.zeros_like(rows.positions), Stream.DRAFT)
    mine = upload(apart, keys.device)
    return replace(rows, seeds=torch.where(mine, keys, rows.seeds))


def _mask_improbable(logits: Tensor, least: Sequence[float]) -> Tensor:
    """Mask the tokens less probable than `least` in logits [Q, V], as these are dropped."""
    low = upload(least, logits.device)[:, None]
    return logits.masked_fill(logits.softmax(dim=-1) < low, -torch.inf)

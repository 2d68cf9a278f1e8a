"""Sampling from draft logits as the request samples: with its stages, its draw and its noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from gencli.models.base import as_wide
from processors.base import Noise
from processors.choose import Chooser
from processors.draw_on_device import sampled
from processors.history import History
from processors.kernels.softmax import token_probability
from processors.pipeline import Pipeline
from processors.rng import Stream, row_key, signed
from processors.rows import Rows
from processors.sampler import Sampler
from processors.upload import upload, upload_ints

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
        self._chooser = Chooser(pipeline, sampler)  # of its own, as its rows differ from the engine's
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
        rows = self._pipeline.prepare(Rows.behind(self._history, slots, drafts))
        wide = as_wide(logits, self.width, self._history.device)
        seeds, reads = self._seeds(slots, apart), any(least) or any(apart)
        processed, tokens = self._chooser.process(wide, rows, reads=reads, seeds=seeds)
        if tokens is None:
            assert processed is not None
            own = rows if seeds is None else replace(rows, seeds=seeds)
            tokens = sampled(self._sampler, processed, own)
        if processed is None or not reads:
            return [Choice(token if token >= 0 else None, 1.0) for token in tokens.tolist()]
        min_p = [one if own else 0.0 for one, own in zip(least, apart, strict=True)]
        processed = _mask_improbable(processed, min_p) if any(min_p) else processed
        probabilities = token_probability(processed, tokens.clamp(min=0))
        pairs = torch.stack([tokens.double(), probabilities.double()]).tolist()
        return [
            Choice(int(token) if token >= 0 and chance >= low else None, chance, row if own else None)
            for token, chance, low, own, row in zip(*pairs, least, apart, processed, strict=True)
        ]

    def noise(self, slot: int) -> Noise | None:
        """The noise that the slot's draw will add to logits; None for a draw without additive noise."""
        return self._sampler.noise(slot, self._history.seed(slot))

    def _seeds(self, slots: Sequence[int], apart: Sequence[bool]) -> Tensor | None:
        """Return the seeds [Q] of draws with independent noise where `apart`; None if there are none."""
        if not any(apart):
            return None
        seeds = [self._history.seed(slot) for slot in slots]
        keys = [_own_seed(seed) if own else seed for seed, own in zip(seeds, apart, strict=True)]
        return upload_ints(keys, self._history.device)


@lru_cache(256)
def _own_seed(seed: int) -> int:
    """Return the seed of a draft's draw that is independent of the target's."""
    return signed(row_key(seed, 0, Stream.DRAFT))


def _mask_improbable(logits: Tensor, least: Sequence[float]) -> Tensor:
    """Mask the tokens less probable than `least` in logits [Q, V], as these are dropped."""
    low = upload(least, logits.device)[:, None]
    return logits.masked_fill(logits.softmax(dim=-1) < low, -torch.inf)

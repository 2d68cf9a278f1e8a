"""The stage `kgw`: a bias for green tokens, the watermark of Kirchenbauer et al. 2023."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from processors.base import Admission, Env, Processor
from processors.catalog import Phase
from processors.catalog.watermark import KgwParams
from processors.errors import ParamError
from processors.rows import Rows
from processors.watermarks.kgw import NUM_CANDIDATES, Green

__all__ = ["Kgw"]

_MOST_VOCAB = 2**18  # ids beside a smaller model; each context permutes the whole vocabulary


class Kgw(Processor[KgwParams]):
    """Add the bias to the logits of green tokens; with selfhash to those among the 40 most likely ones.

    The prompt is part of the context. A row whose context is shorter than `width` is not changed. Each
    context outside the cache of the last 256 costs one permutation of the vocabulary, with selfhash 40.
    ParamError at admission: no id is green, or the vocabulary is much larger than that of the model.
    """

    name = "kgw"
    phase = Phase.ADJUST
    Params = KgwParams
    keeps_faults = True

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._green: dict[int, Green] = {}
        self._last: dict[int, tuple[int, ...]] = {}  # last ids on the host, for reads without synchronisation
        self._built = functools.lru_cache(maxsize=16)(self._build)

    def admit(self, slot: int, params: KgwParams, request: Admission) -> None:
        """Take the last ids of the prompt as context."""
        super().admit(slot, params, request)
        self._green[slot] = self._built(params)
        self._last[slot] = request.prompt[-params.width :]

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Append the tokens to the context."""
        self._last[slot] = (*self._last[slot], *tokens)[-self._green[slot].params.width :]

    def release(self, slot: int) -> None:
        """Drop the context."""
        self._green.pop(slot, None)
        self._last.pop(slot, None)

    def fork(self, source: int, target: int) -> None:
        """Copy the context; the green tokens are shared."""
        super().fork(source, target)
        self._green[target], self._last[target] = self._green[source], self._last[source]

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. The mask of green ids of each row is made on the host."""
        width = logits.shape[1]
        contexts = [
            (*self._last[slot], *drafts)
            for slot, drafts in zip(rows.host_slots, rows.host_drafts, strict=True)
        ]
        tops = self._tops(logits, rows)
        masks = torch.zeros(len(rows), width, dtype=torch.bool)
        for place, (slot, context) in enumerate(zip(rows.host_slots, contexts, strict=True)):
            green = self._green[slot]
            if len(context) < green.params.width:
                continue
            if not green.is_self:
                most = min(width, green.vocab)
                masks[place, :most] = green.after(context[-1])[:most]
                continue
            before = context[len(context) - green.params.width + 1 :]
            candidates = [token for token in tops[place] if token < green.vocab]
            are_green = green.among(before, candidates)
            masks[place, [token for token, one in zip(candidates, are_green, strict=True) if one]] = True
        bias = self.columns.gather("bias", rows)[:, None]
        masks = masks.to(logits.device, non_blocking=True)
        return torch.where(masks, logits + bias, logits)  # -inf stays -inf

    def _tops(self, logits: Tensor, rows: Rows) -> list[list[int]]:
        """Return the 40 most likely ids of each row, ties by lowest id; empty without selfhash."""
        if "selfhash" not in self.columns.known("scheme", rows):
            return []
        count = min(NUM_CANDIDATES, logits.shape[1])
        last = logits.topk(count, dim=1).values[:, -1:]
        found = []
        for row, bound in zip(logits, last, strict=True):
            above = (row > bound).nonzero().flatten()
            ties = (row == bound).nonzero().flatten()[: count - len(above)]
            found.append([*above.tolist(), *ties.tolist()])
        return found

    def _build(self, params: KgwParams) -> Green:
        width = self.env.vocab_size
        green = Green(params, params.vocab or width)
        if green.size < 1:
            raise ParamError(
                f"ratio is {params.ratio:g}, which makes no id of a vocabulary of {green.vocab} green. "
                "Take a larger one."
            )
        if green.vocab > max(_MOST_VOCAB, 2 * width):
            raise ParamError(f"vocab is {green.vocab}, but the model has {width} ids.")
        return green

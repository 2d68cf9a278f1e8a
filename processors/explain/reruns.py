"""`Rerun`: a step's rows through their chains again, and again without some of the stages."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import Sampler

__all__ = ["Rerun"]


class Rerun:
    """The calls of the rows' program; `logits` [A, V] before each of them and behind the last.

    Draws have the noise of the step, so a row without a stage gets the token that a chain without it gives.
    """

    def __init__(
        self, pipeline: Pipeline, sampler: Sampler, logits: Tensor, rows: Rows, tokens: Tensor
    ) -> None:
        self.calls, self.logits = pipeline.program(rows), [logits.float()]
        self._pipeline, self._sampler, self._rows, self._tokens = pipeline, sampler, rows, tokens
        pipeline.run(self.calls, logits, rows, lambda _, after: self.logits.append(after.clone()))

    def without(self, numbers: Collection[int]) -> list[int]:
        """Return the token of each row if the calls of these numbers are left out.

        Where the logits are again what they were, the rest of the chain and the draw are not repeated.
        """
        last = max(numbers, default=-1)
        first = min(numbers, default=0)
        work = self.logits[first]
        for number in range(first, len(self.calls)):
            if number not in numbers:
                work = self._pipeline.run((self.calls[number],), work, self._rows)
            if number >= last and torch.equal(work, self.logits[number + 1]):
                found: list[int] = self._tokens.tolist()
                return found
        found = self._sampler(work, self._rows).tolist()
        return found

    def restore(self) -> None:
        """Let the stages that follow the output see what they saw in the step: a commit refers to it."""
        for call, before in zip(self.calls, self.logits, strict=False):
            if self._pipeline.stage(*call.key).remembers:
                self._pipeline.run((call,), before, self._rows)

"""`Rerun`: runs a step's rows through their chains again, with and without some stages."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import Sampler

__all__ = ["Rerun"]


class Rerun:
    """The calls of the rows' program, and the logits [A, V] before each call and after the last.

    Draws use the noise of the step, so a row without some stage gets the token that a chain without the stage
    gives. `tokens`: the tokens of the draw; if they are known, set them before the first call of `without`.
    """

    def __init__(self, pipeline: Pipeline, sampler: Sampler, logits: Tensor, rows: Rows) -> None:
        self.calls, self.logits = pipeline.program(rows), [logits.float()]
        self._pipeline, self._sampler, self._rows = pipeline, sampler, rows
        self.tokens: list[int] = []
        self._known: dict[tuple[int, ...], list[int]] = {}
        pipeline.run(self.calls, logits, rows, lambda _, after: self.logits.append(after.clone()))

    def draw(self) -> None:
        """Draw the tokens again, from the last logits."""
        self.tokens = self._sampler(self.logits[-1], self._rows).tolist()

    def without(self, *numbers: int) -> list[int]:
        """Return the token of each row if the calls with these numbers are left out.

        Once the logits equal the original ones, the rest of the chain and the draw are not repeated.
        """
        if numbers not in self._known:
            self._known[numbers] = self._without(numbers)
        return self._known[numbers]

    def _without(self, numbers: tuple[int, ...]) -> list[int]:
        if not numbers:
            return self.tokens
        work = self.logits[min(numbers)]
        for number in range(min(numbers), len(self.calls)):
            if number not in numbers:
                work = self._pipeline.run((self.calls[number],), work, self._rows)
            if number >= max(numbers) and torch.equal(work, self.logits[number + 1]):
                return self.tokens
        drawn: list[int] = self._sampler(work, self._rows).tolist()
        return drawn

    def restore(self) -> None:
        """Rerun the stages that remember their last `apply`, so that a commit refers to the step's logits."""
        for call, before in zip(self.calls, self.logits, strict=False):
            if self._pipeline.stage(*call.key).remembers:
                self._pipeline.run((call,), before, self._rows)

"""Engine with beam search and best-of-n in addition to sampling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gencli.beams.best_of import BestOf, expand_samples
from gencli.beams.loop import BeamLoop
from gencli.core.events import Event
from gencli.core.request import Request
from gencli.engine.admission import admission, check_request
from gencli.engine.engine import Engine
from gencli.errors import UsageError
from gencli.models.base import ModelRunner
from gencli.text.tokenizer import Tokenizer

__all__ = ["ChoosingEngine"]


class ChoosingEngine(Engine):
    """Engine that also runs requests with `beams` or `best_of`, with the same events.

    Beam searches begin when no sample is running, and then use all slots.
    """

    def __init__(
        self, runner: ModelRunner, tokenizer: Tokenizer, *, max_batch: int = 8, **options: Any
    ) -> None:
        super().__init__(runner, tokenizer, max_batch=max_batch, **options)
        self._max_batch, self._best_of = max_batch, BestOf()
        self._beams = BeamLoop(runner, tokenizer, self.pipeline, eos_ids=self.eos_ids, num_slots=max_batch)

    @torch.inference_mode()
    def submit(self, request: Request) -> None:
        """Queue a request. Raises UsageError or ProcessorsError for one that cannot run."""
        if request.beams is None:
            super().submit(expand_samples(request))
            self._best_of.watch(request)
            return
        request, spec = self.effective(request), self._runner.spec
        check_request(request, spec)
        self._check_width(request.beams.width if request.beams else 1, request.n)
        self.pipeline.admit(self._spare_slot, request.chain, admission(request, spec.context))
        self.pipeline.release(self._spare_slot)
        self._beams.submit(request)

    def _check_width(self, width: int, num_texts: int) -> None:
        if width > self._max_batch:
            raise UsageError(
                f"`beams` is {width}, but `max_batch` lets only {self._max_batch} run side by side.",
                hint=f"Raise `max_batch` to {width}, or take fewer beams.",
            )
        if num_texts > width:
            raise UsageError(f"n is {num_texts}, but {width} beams find at most {width} texts.")

    def run(self) -> Iterator[Event]:
        """Generate until every submitted request has ended. More may be submitted between two events."""
        while True:
            yield from self._best_of.select(super().run())
            if not self._beams.has_work:
                return
            _, lanes = self._scheduler.preempt_all()  # nothing runs, but lanes may hold cached prefixes
            for lane in lanes:
                self._runner.release(lane)
            for event in self._beams.run():
                self.occupancy = self._beams.occupancy
                yield event
            self.notices += self._beams.notices
            self._beams.notices.clear()

    def interrupt(self) -> None:
        """End all requests, with their texts so far, at the next step. Safe in a signal handler."""
        self._beams.interrupt()
        super().interrupt()

    def end_waiting(self) -> Iterator[Event]:
        """End the requests that have not begun; running ones continue."""
        yield from self._best_of.select(super().end_waiting())
        yield from self._beams.end_waiting()

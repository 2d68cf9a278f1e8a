"""An engine that also searches, and that also chooses among samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gencli.beams.best_of import BestOf, widened
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
    """Runs requests with `beams` or `best_of` beside ordinary ones, with the same events.

    Searches and samples take turns: a search begins when no sample runs, and has all slots then.
    """

    def __init__(
        self, runner: ModelRunner, tokenizer: Tokenizer, *, max_batch: int = 8, **options: Any
    ) -> None:
        super().__init__(runner, tokenizer, max_batch=max_batch, **options)
        self._max_batch, self._best_of = max_batch, BestOf()
        self._beams = BeamLoop(runner, tokenizer, self.pipeline, eos_ids=self.eos_ids, num_slots=max_batch)

    @torch.inference_mode()
    def submit(self, request: Request) -> None:
        """Queue a request. What cannot run is refused here, before anything is generated."""
        if request.beams is None:
            super().submit(widened(request))
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
                f"--beams is {width}, but --max-batch lets only {self._max_batch} run side by side.",
                hint=f"Raise --max-batch to {width}, or take fewer beams.",
            )
        if num_texts > width:
            raise UsageError(f"n is {num_texts}, but {width} beams find at most {width} texts.")

    def run(self) -> Iterator[Event]:
        """Generate until every submitted request has ended. More may be submitted between two events."""
        while True:
            yield from self._best_of.told(super().run())
            if not self._beams.has_work:
                return
            for lane in self._scheduler.preempt_all()[1]:  # nothing runs, but lanes may be kept for later
                self._runner.release(lane)
            for event in self._beams.run():
                self.occupancy = self._beams.occupancy
                yield event
            self.notices += self._beams.notices
            self._beams.notices.clear()

    def interrupt(self) -> None:
        """End all that is open, with its text so far, at the next step. Safe in a signal handler."""
        self._beams.interrupt()
        super().interrupt()

    def end_waiting(self) -> Iterator[Event]:
        """End what has not begun; what runs goes on."""
        yield from self._best_of.told(super().end_waiting())
        yield from self._beams.end_waiting()

"""Run the jobs of one caller at a time on an engine."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace

from gencli.config.job import Job
from gencli.config.requests import make_request
from gencli.core.events import Event
from gencli.engine.engine import Engine
from gencli.errors import UsageError
from gencli.runtime.attempts import RetryingEngine
from gencli.text.tokenizer import Tokenizer
from processors.rng import derive

__all__ = ["OneStream"]


class OneStream:
    """An engine whose events are read by one stream at a time; invalid outputs are retried."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer) -> None:
        self._engine, self._tokenizer = engine, tokenizer
        self._attempts = RetryingEngine(engine)
        self._num_requests, self._is_busy = 0, False

    def check_idle(self) -> None:
        """Raise UsageError while a stream is open."""
        if self._is_busy:
            raise UsageError("A stream of this LLM is open. Read it to its end, or close it.")

    def events(self, jobs: Sequence[Job], ids: Sequence[tuple[int, ...]]) -> Generator[Event, None, None]:
        """Submit the requests, and yield their events with prompt indices as request ids.

        Closing the generator early ends its requests.
        """
        self.check_idle()
        self._is_busy, is_whole, first = True, False, self._num_requests
        self._num_requests += len(jobs)
        try:
            for number, (job, prompt_ids) in enumerate(zip(jobs, ids, strict=True)):
                name, seed = str(first + number), derive(job.seed, number)
                request = make_request(job, name, prompt_ids, seed, self._tokenizer)
                self._attempts.submit(request, job.structure)
            for event in self._attempts.run():
                yield replace(event, request=str(int(event.request) - first))
            is_whole = True
        finally:
            if not is_whole:
                self._drain()
            self._is_busy = False

    def _drain(self) -> None:
        """Interrupt all requests, and discard their events."""
        with suppress(Exception):  # the original error is raised instead
            self._engine.interrupt()
            for _ in self._attempts.run(is_merged=True):
                pass

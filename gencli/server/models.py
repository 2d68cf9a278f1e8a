"""The models that one server answers for, chosen by name. Imports nothing heavy."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from gencli.server.admission import Admission, Ticket
from gencli.server.body import parse_body
from gencli.server.conditions import Conditions
from gencli.server.wire.errors import ApiError

if TYPE_CHECKING:
    from gencli.server.serving import Serving

__all__ = ["Models"]

T = TypeVar("T")
_THREADS = 4  # that read bodies


class Models:
    """The models by name, of which the first answers requests that name none. For the event loop.

    Each has its own engine, threads, admission and metrics; `conditions` are those of the server. A call is
    counted twice: here from its first byte, when its model is not known yet, and then by its model.
    """

    def __init__(self, servings: Mapping[str, Serving], conditions: Conditions) -> None:
        self._servings, self.conditions = dict(servings), conditions
        self._first = next(iter(self._servings.values()))
        self._admission = Admission(sum(serving.admission.most for serving in self))
        self._pool = ThreadPoolExecutor(_THREADS, "read")
        self.replies: Counter[int] = Counter()  # by status

    @classmethod
    def of(cls, *servings: Serving) -> Models:
        """Return the models of servings with the same conditions."""
        return cls({serving.name: serving for serving in servings}, servings[0].conditions)

    def __iter__(self) -> Iterator[Serving]:
        return iter(self._servings.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order of the command line."""
        return tuple(self._servings)

    def get(self, name: str | None) -> Serving:
        """Return the model of a name, the first one without a name. Raises ApiError 404."""
        if not name:
            return self._first
        if name not in self._servings:
            known = ", ".join(self.names)
            raise ApiError(
                404, f"There is no model {name[:200]!r}.", param="model", code="model_not_found",
                hint=f"Known: {known}.",
            )  # fmt: skip
        return self._servings[name]

    def start(self) -> None:
        """Start the engines' threads, for the running event loop."""
        for serving in self:
            serving.start()

    def stop(self) -> None:
        """End all threads."""
        self._admission.is_draining = True
        for serving in self:
            serving.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def drain(self) -> None:
        """Take no more calls; wait for the running ones, then end them with an error."""
        self._admission.is_draining = True
        end = time.monotonic() + self.conditions.shutdown_timeout
        while self._admission.num_calls and time.monotonic() < end:
            await asyncio.sleep(0.02)
        for serving in self:
            serving.thread.stop()

    @property
    def state(self) -> str:
        """ready, draining, or dead if an engine has failed."""
        if self._admission.is_draining:
            return "draining"
        return "dead" if any(serving.thread.error is not None for serving in self) else "ready"

    def enter(self) -> AbstractContextManager[Ticket]:
        """Count a call before its body is read. Raises ApiError 503, or 429 if no model has room."""
        if not self._admission.is_draining and all(serving.admission.is_full for serving in self):
            raise self._first.admission.full()
        return self._admission.enter()

    async def read(self, body: bytes, use: Callable[[Serving, Any], T]) -> tuple[Serving, T]:
        """Return the model that a body names, and `use(model, value)` of the body's JSON value.

        Both are found beside the event loop. Raises ApiError.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, body, use)

    def _read(self, body: bytes, use: Callable[[Serving, Any], T]) -> tuple[Serving, T]:
        value = parse_body(body)
        name = value.get("model") if isinstance(value, Mapping) else None
        serving = self.get(name if isinstance(name, str) else None)  # `use` refuses what is no text
        try:
            return serving, use(serving, value)
        except Exception as error:
            raise serving.error(error) from error

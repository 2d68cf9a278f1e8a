"""The models served by one server, selected by name. Imports nothing heavy."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from gencli.server.admission import Admission, Ticket
from gencli.server.body import Bodies, parse_body, read_body
from gencli.server.conditions import Conditions
from gencli.server.pool import Pool
from gencli.server.security import Receive, Scope
from gencli.server.wire.errors import ApiError

if TYPE_CHECKING:
    from gencli.server.serving import Serving

__all__ = ["Models"]

T = TypeVar("T")
_THREADS = 2  # threads that parse bodies; each keeps some of the memory of the largest ones


class Models:
    """The models by name; the first one serves requests without a model name. For the event loop.

    Each model has its own engine, threads, admission and metrics; `conditions` are shared. A call is counted
    twice: here while its body is read, because its model is not known yet, and then by its model.
    """

    def __init__(self, servings: Mapping[str, Serving], conditions: Conditions) -> None:
        self._servings, self.conditions = dict(servings), conditions
        self._first = next(iter(self._servings.values()))
        self._admission = Admission(sum(serving.admission.most for serving in self))
        self._pool = Pool(_THREADS)
        self._bodies = Bodies()
        self.replies: Counter[int] = Counter()  # replies by status

    @classmethod
    def of(cls, *servings: Serving) -> Models:
        """Return the models of servings with the same conditions."""
        return cls({serving.name: serving for serving in servings}, servings[0].conditions)

    def __iter__(self) -> Iterator[Serving]:
        return iter(self._servings.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in command-line order."""
        return tuple(self._servings)

    def get(self, name: str | None) -> Serving:
        """Return the model of a name, the first model for None. Raises ApiError 404."""
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
        """Start the engine threads, for the running event loop."""
        for serving in self:
            serving.start()

    def stop(self) -> None:
        """End all threads."""
        self._admission.is_draining = True
        for serving in self:
            serving.stop()
        self._pool.shutdown()

    async def drain(self) -> None:
        """Accept no more calls; wait for running calls, then end them with an error."""
        self._admission.is_draining = True
        end = time.monotonic() + self.conditions.shutdown_timeout
        while self._admission.num_calls and time.monotonic() < end:
            await asyncio.sleep(0.02)
        self.cut()

    def cut(self) -> None:
        """End the running calls with an error, after the current step."""
        for serving in self:
            serving.thread.stop()

    @property
    def state(self) -> str:
        """ "ready", "draining", or "dead" if an engine has failed."""
        if self._admission.is_draining:
            return "draining"
        return "dead" if any(serving.thread.error is not None for serving in self) else "ready"

    def enter(self) -> AbstractContextManager[Ticket]:
        """Count a call before its body is read. Raises ApiError 503, or 429 if every model is full."""
        if not self._admission.is_draining and all(serving.admission.is_full for serving in self):
            raise self._first.admission.full()
        return self._admission.enter()

    @asynccontextmanager
    async def body(self, scope: Scope, receive: Receive) -> AsyncIterator[bytes]:
        """Read the body of a call, and count the call until its end.

        Raises ApiError. A full server refuses a call before reading it. A call whose body is being read does
        not count as work; otherwise clients that never finish their bodies could fill the server.
        """
        with self.enter():
            pass
        with self._bodies.room() as hold:
            body = await read_body(scope, receive, self.conditions.limits.body, hold)
            with self.enter():
                yield body

    async def read(self, body: bytes, use: Callable[[Serving, Any], T]) -> tuple[Serving, T]:
        """Return the model that a body names, and `use(model, value)` of the body's JSON value.

        Runs outside of the event loop. Raises ApiError.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, body, use)

    def _read(self, body: bytes, use: Callable[[Serving, Any], T]) -> tuple[Serving, T]:
        value = parse_body(body)
        name = value.get("model") if isinstance(value, Mapping) else None
        serving = self.get(name if isinstance(name, str) else None)  # `use` rejects a name that is not text
        try:
            return serving, use(serving, value)
        except Exception as error:
            raise serving.error(error) from None

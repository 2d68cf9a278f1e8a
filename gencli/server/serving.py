"""One served model: the engine's thread, its thread pools, and the data that routes need."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gencli import __version__
from gencli.config.settings import Settings
from gencli.engine.engine import Engine
from gencli.runtime.attempts import RetryingEngine
from gencli.runtime.grammars import Grammars
from gencli.runtime.models import Loaded
from gencli.runtime.wiring import make_engine
from gencli.server.admission import Admission
from gencli.server.conditions import Conditions
from gencli.server.engine_thread import EngineThread
from gencli.server.failures import api_error
from gencli.server.limits import check_call
from gencli.server.metrics import Metrics
from gencli.server.names import public_name
from gencli.server.pool import Pool
from gencli.server.prepare import Preparer
from gencli.server.wire.call import Call, Route, read_call
from gencli.server.wire.errors import ApiError
from processors.base import Compiler

__all__ = ["Conditions", "Serving"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_THREADS = 4  # threads of each pool
_WINDOW = 8  # texts that may overtake one in the queue; people wait for them, unlike for rows of a batch


class Serving:
    """Owns the engine of one model, its thread and the pools. `start` and `stop` are for the event loop.

    Options of a call are read and prompts prepared on a pool; calls with a grammar have a pool of their own,
    so that slow grammars delay each other only.
    """

    thread: EngineThread

    def __init__(
        self,
        settings: Settings,
        loaded: Loaded,
        compiler: Compiler,
        conditions: Conditions | None = None,
        *,
        name: str = "",
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.conditions = conditions or Conditions()
        self.spec, self.tokenizer = loaded.runner.spec, loaded.tokenizer
        self.settings = settings
        self._model = str(settings["model"])
        self.name = name or public_name(self._model)
        self.preparer = Preparer(
            settings,
            loaded.tokenizer,
            Grammars(compiler, retries_late=True),
            context=self.spec.context,
            notice=notice,
        )
        self.engine: Engine = make_engine(
            loaded, settings, compiler, registry=self.preparer.registry, window=_WINDOW
        )
        self.admission = Admission(self.engine.limit + self.conditions.max_queue)
        self.metrics = Metrics()
        self.fingerprint = f"gencli-{__version__}-{self._digest()}"
        self.created = time.time()
        self._quick = Pool(_THREADS)
        self._slow = Pool(_THREADS)

    def start(self) -> None:
        """Start the engine's thread, for the running event loop."""
        self.thread = EngineThread(RetryingEngine(self.engine))
        self.thread.on_event = self.metrics.add

    def stop(self) -> None:
        """End the thread and the pools."""
        self.thread.stop()
        self.thread.join(10)
        for pool in (self._quick, self._slow):
            pool.shutdown()

    def call(self, body: Any, route: Route) -> Call:
        """Return the call of a parsed body, within the size limits. Raises ApiError."""
        lenient, registry = self.conditions.is_lenient, self.preparer.registry
        call = read_call(body, route, registry=registry, is_lenient=lenient)
        check_call(call, self.conditions.limits, self.spec.context)
        return call

    async def beside(
        self, work: Callable[[], T], *, fields: Mapping[str, str] | None = None, is_slow: bool = False
    ) -> T:
        """Run work on a pool; its errors become ApiErrors. `fields`: the body's field of each option."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._slow if is_slow else self._quick, work)
        except Exception as error:
            # `from error` would make an ApiError its own cause, and keep the body alive until a garbage
            # collection.
            raise self.error(error, fields) from None

    def error(self, error: BaseException, fields: Mapping[str, str] | None = None) -> ApiError:
        """Return an exception as an ApiError, without the model's path."""
        found = api_error(error, fields)
        if found.code == "internal_error":  # the client gets only its type
            _LOG.error("A request has failed.", exc_info=error)
        message = found.message
        for place in {self._model, self.tokenizer.name}:
            if os.sep in place:
                message = message.replace(place, self.name)
        if message != found.message:
            return ApiError(found.status, message, param=found.param, code=found.code, headers=found.headers)
        return found

    @property
    def gauges(self) -> dict[str, float]:
        """Return current values, for /metrics."""
        admission = self.admission
        running = min(self.thread.num_open, round(self.engine.occupancy * self.engine.limit))
        return {
            "num_requests_running": running if self.thread.num_open else 0,
            "num_requests_waiting": max(0, admission.num_samples - running),
            "num_calls_open": admission.num_calls,
            "num_calls_refused": admission.num_refused,
            "max_batch": self.engine.limit,
        }

    def _digest(self) -> str:
        spec = self.spec
        parts = [self.name, str(spec.dtype), spec.backend, spec.quantization, *spec.kernels]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:10]

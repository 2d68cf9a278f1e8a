"""Listens on an address until a signal: the first signal drains, the second ends immediately."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn

from gencli.errors import UsageError
from gencli.server.connections import Connection, Connections, most_connections
from gencli.server.models import Models
from gencli.server.opening import Door, loading_app
from gencli.server.security import App, Rules

__all__ = ["bind", "listen"]

_Handler = Callable[[int, FrameType | None], None]
_LEFT = 5  # seconds for replies to be sent after the engine has ended
_SEND_BUFFER = 1 << 18  # bytes that the system buffers for a slow reader, doubled on Linux; 4 MiB by default
_KEEP_ALIVE = 30  # seconds that a connection may be idle


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UsageError for an address in use or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, ValueError, TypeError) as error:  # the last two for unencodable names
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"`host` = {host}, `port` = {port} cannot be listened on: {reason}.", hint="Take another port."
        ) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)  # connections inherit the size
    return listener


def listen(
    load: Callable[[], Models],
    rules: Rules,
    listener: socket.socket,
    *,
    on_ready: Callable[[], None],
    on_early_signal: _Handler,
) -> None:
    """Serve until a signal; has to run in the main thread.

    `load` returns the models and runs on its own thread; until then requests get status 503. Its error ends
    the server and is raised here. `on_early_signal` handles a signal during loading: it has to end the
    process, because the thread may be inside a library call that cannot be interrupted.
    """
    door = Door(loading_app(rules))
    connections = Connections(most_connections())
    config = uvicorn.Config(
        door,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        http=cast(Any, partial(Connection, connections=connections)),
        ws="none",
        loop="asyncio",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_LEFT,
    )
    server = _Server(config, door, load, on_ready, on_early_signal, connections)
    server.run(sockets=[listener])
    if server.error is not None:
        raise server.error


class _Server(uvicorn.Server):
    """Replies while the models are loaded and during draining, so that health checks see the state."""

    def __init__(
        self,
        config: uvicorn.Config,
        door: Door,
        load: Callable[[], Models],
        on_ready: Callable[[], None],
        on_early_signal: _Handler,
        connections: Connections,
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._door, self._load = door, load
        self._on_ready, self._on_early_signal = on_ready, on_early_signal
        self._models: Models | None = None
        self._is_draining = False
        self._draining: asyncio.Task[None] | None = None
        self.error: BaseException | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._make, name="loader", daemon=True).start()

    def _make(self) -> None:
        """Load the models, on the loader's thread."""
        try:
            models = self._load()
            from gencli.server.app import make_app  # imports the engine

            app = make_app(models)
        except BaseException as error:  # any kind of exception: the main thread raises it
            raised = error
            self._loop.call_soon_threadsafe(lambda: self._fail(raised))
        else:
            self._loop.call_soon_threadsafe(lambda: self._open(models, app))

    def _fail(self, error: BaseException) -> None:
        self.error, self.should_exit = error, True

    def _open(self, models: Models, app: App) -> None:
        models.start()
        self._door.app, self._models = app, models
        self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        """Check the connections, about once a second."""
        if counter % 10 == 0:
            self._connections.sweep()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self._models is not None:  # also in haste: PyTorch aborts a process that ends during a step
            self._models.stop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal; end immediately at the second."""
        if self._models is None:
            self._on_early_signal(sig, frame)
        elif self._is_draining:
            self._loop.call_soon_threadsafe(self._models.cut)
            self.should_exit = self.force_exit = True
        else:
            self._is_draining = True
            self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        assert self._models is not None
        try:
            await self._models.drain()
        finally:
            self.should_exit = True

"""Listen on an address until a signal ends it: the first one drains, the second one ends at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn

from gencli.errors import UsageError
from gencli.server.app import make_app
from gencli.server.connections import Connection, Connections, most_connections
from gencli.server.models import Models

__all__ = ["bind", "listen"]

_LEFT = 5  # seconds for replies to leave after the engine has ended
_SEND_BUFFER = 1 << 18  # bytes that the system holds for a slow reader, doubled on Linux; 4 MiB otherwise
_KEEP_ALIVE = 30  # seconds that a connection may be idle


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UsageError for an address that is taken or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, ValueError, TypeError) as error:  # the last two for names that cannot be encoded
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"`host` = {host}, `port` = {port} cannot be listened on: {reason}.", hint="Take another port."
        ) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)  # connections have the same
    return listener


def listen(models: Models, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until a signal; has to run in the main thread."""
    connections = Connections(most_connections())
    config = uvicorn.Config(
        make_app(models),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        http=cast(Any, partial(Connection, connections=connections)),
        ws="none",
        loop="asyncio",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_LEFT,
    )
    _Server(config, models, on_ready, connections).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Goes on answering while it drains, so that health checks and new requests learn of it."""

    def __init__(
        self, config: uvicorn.Config, models: Models, on_ready: Callable[[], None], connections: Connections
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._models, self._on_ready = models, on_ready
        self._is_draining = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        """Look after the connections, about once a second."""
        if counter % 10 == 0:
            self._connections.sweep()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal; end at the second."""
        if self._loop is None or self._is_draining:
            self.should_exit = self.force_exit = True
            return
        self._is_draining = True
        self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        try:
            await self._models.drain()
        finally:
            self.should_exit = True

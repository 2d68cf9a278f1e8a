"""Listen on an address from the first moment until a signal: the first drains, the second ends at once."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn

from gencli.errors import UsageError
from gencli.server.models import Models
from gencli.server.opening import Door, loading_app
from gencli.server.security import App, Rules

__all__ = ["bind", "listen"]

_Handler = Callable[[int, FrameType | None], None]
_LEFT = 5  # seconds for replies to leave after the engine has ended
_KEEP_ALIVE = 30  # seconds that a connection may be idle


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UsageError for an address that is taken or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, ValueError, TypeError) as error:  # the last two for names that cannot be encoded
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"`host` = {host}, `port` = {port} cannot be listened on: {reason}.", hint="Take another port."
        ) from None


def listen(
    load: Callable[[], Models],
    rules: Rules,
    listener: socket.socket,
    *,
    on_ready: Callable[[], None],
    on_early_signal: _Handler,
) -> None:
    """Serve until a signal; has to run in the main thread.

    `load` returns the models, on a thread beside the event loop; until then requests get a 503. Its error
    ends the server and is raised here. `on_early_signal` handles a signal until then: it has to end the
    process, because the thread may be in a library that nothing interrupts.
    """
    door = Door(loading_app(rules))
    config = uvicorn.Config(
        door,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        http="h11",
        ws="none",
        loop="asyncio",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_LEFT,
    )
    server = _Server(config, door, load, on_ready, on_early_signal)
    server.run(sockets=[listener])
    if server.error is not None:
        raise server.error


class _Server(uvicorn.Server):
    """Answers while the models are loaded and while it drains, so that health checks learn of it."""

    def __init__(
        self,
        config: uvicorn.Config,
        door: Door,
        load: Callable[[], Models],
        on_ready: Callable[[], None],
        on_early_signal: _Handler,
    ) -> None:
        super().__init__(config)
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
        except BaseException as error:  # of any kind: the main thread raises it
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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self._models is not None and not self.force_exit:
            self._models.stop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal; end at the second."""
        if self._models is None:
            self._on_early_signal(sig, frame)
        elif self._is_draining:
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

"""Listens on an address until a signal (the first drains, the second ends immediately), with limits on
connections: their number, the time to receive a request and to send a reply. uvicorn bounds none of
these: clients that never complete their headers, or never read their reply, would lock all others out.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from gencli.errors import UsageError
from gencli.server.access import AccessRules, App
from gencli.server.opening import loading_app
from gencli.server.served_models import Models
from gencli.server.wire_fields import ApiError

_Handler = Callable[[int, FrameType | None], None]
_CLOSE_SECONDS = 5  # seconds for replies to be sent after the engine has ended
_SEND_BUFFER = 1 << 18  # bytes that the system buffers for a slow reader, doubled on Linux; 4 MiB by default
_IDLE_SECONDS = 30  # seconds that a connection may be idle


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UsageError for an address in use or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, ValueError, TypeError) as error:  # the last two for unencodable names
        reason = getattr(error, "strerror", None) or str(error)
        message = f"The server cannot listen on `host` = {host}, `port` = {port}: {reason}."
        raise UsageError(message, hint="Take another port.") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)  # connections inherit the size
    return listener


def listen(
    load: Callable[[], Models],
    rules: AccessRules,
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
    server = _Server(load, rules, on_ready, on_early_signal)
    server.run(sockets=[listener])
    if server.error is not None:
        raise server.error


class _Server(uvicorn.Server):
    """Replies while the models are loaded and during draining, so that health checks see the state."""

    def __init__(
        self,
        load: Callable[[], Models],
        rules: AccessRules,
        on_ready: Callable[[], None],
        on_early_signal: _Handler,
    ) -> None:
        self._app, self._connections = loading_app(rules), Connections(max_connections())
        config = uvicorn.Config(
            lambda *message: self._app(*message),  # the app changes when the models are loaded
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            http=cast(Any, partial(Connection, connections=self._connections)),
            ws="none",
            loop="asyncio",
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_CLOSE_SECONDS,
        )
        super().__init__(config)
        self._load, self._on_ready, self._on_early_signal = load, on_ready, on_early_signal
        self._models: Models | None = None
        self._draining: Future[None] | None = None
        self.error: BaseException | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._load_app, name="loader", daemon=True).start()

    def _load_app(self) -> None:
        try:
            models = self._load()
            from gencli.server.asgi_app import make_app

            app = make_app(models)
        except BaseException as error:  # any kind of exception: the main thread raises it
            self._loop.call_soon_threadsafe(self._fail, error)
        else:
            self._loop.call_soon_threadsafe(self._open, models, app)

    def _fail(self, error: BaseException) -> None:
        self.error, self.should_exit = error, True

    def _open(self, models: Models, app: App) -> None:
        models.start()
        self._app, self._models = app, models
        self._on_ready()

    async def on_tick(self, counter: int) -> bool:
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
        elif self._draining is not None:
            self._loop.call_soon_threadsafe(self._models.cut)
            self.should_exit = self.force_exit = True
        else:
            self._draining = asyncio.run_coroutine_threadsafe(self._drain(), self._loop)

    async def _drain(self) -> None:
        assert self._models is not None
        try:
            await self._models.drain()
        finally:
            self.should_exit = True


_MAX_CONNECTIONS = 4096
_OWN_FILES = 256  # files of the process itself: weights, pools, logs
_PIPELINED = 1 << 16  # bytes of the next request that may arrive while one is answered


def max_connections() -> int:
    """Return how many connections the process accepts; raises its limit of open files to the hard limit."""
    try:
        import resource
    except ImportError:  # on Windows
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_CONNECTIONS + _OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY:
            wanted = min(hard, wanted)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(16, min(_MAX_CONNECTIONS, soft - _OWN_FILES))


class Connections:
    """The connections of a server, for its event loop. `sweep` has to be called about once a second.

    At most `limit` connections; a further one replaces the one that has kept the server waiting longest, and
    is refused if all are being answered. `head_seconds`: limit for receiving a request's head. A closed
    connection is aborted if its client reads none of the last bytes for `close_seconds`.
    """

    def __init__(self, limit: int, *, head_seconds: float = 20.0, close_seconds: float = 30.0) -> None:
        self._limit, self._head_seconds, self._close_seconds = limit, head_seconds, close_seconds
        self._open: dict[Connection, None] = {}
        self._closing: dict[Connection, tuple[int, float]] = {}  # bytes left to send, since when unchanged
        self._waiting: dict[Connection, float | None] = {}  # waiting for the client; when a head began

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> bool:
        """Count a connection; return False if there are too many."""
        if len(self._open) >= self._limit:
            if not self._waiting:
                return False
            self.drop(next(iter(self._waiting)))
        self._open[connection] = None
        self._waiting[connection] = time.monotonic()
        return True

    def note(self, connection: Connection, *, is_waiting: bool, has_begun: bool) -> None:
        """Record whether the server waits for the client, and whether a head has begun to arrive."""
        if not is_waiting:
            self._waiting.pop(connection, None)
        elif connection in self._open:
            since = self._waiting.get(connection)
            self._waiting[connection] = (since or time.monotonic()) if has_begun else None

    def remove(self, connection: Connection) -> None:
        for connections in (self._open, self._waiting, self._closing):
            connections.pop(connection, None)

    def drop(self, connection: Connection) -> None:
        """Abort a connection; unsent bytes are lost."""
        self.remove(connection)
        connection.transport.abort()

    def sweep(self) -> None:
        """Abort the connections that exceed a time limit."""
        now = time.monotonic()
        for connection, begun in [*self._waiting.items()]:
            if begun is not None and now - begun > self._head_seconds:
                self.drop(connection)
        for connection in [other for other in self._open if other.transport.is_closing()]:
            size = connection.transport.get_write_buffer_size()
            least, since = self._closing.get(connection, (size + 1, now))
            if size < least:
                self._closing[connection] = size, now
            elif now - since > self._close_seconds:
                self.drop(connection)


class Connection(H11Protocol):
    """uvicorn's connection, counted in `connections`; its errors have the server's common form."""

    def __init__(self, *args: Any, connections: Connections, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = connections

    @property
    def _is_answered(self) -> bool:
        # A request has been received completely, and its reply is not sent completely.
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._limits.add(self):
            self._refuse(ApiError(503, "The server has too many connections.", code="connections_full"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read data. Reading continues while a request is answered, as only this detects a disconnect."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        cycle = self.cycle
        in_body = cycle is not None and not cycle.response_complete and cycle.more_body
        self._limits.note(self, is_waiting=not self._is_answered, has_begun=not in_body)
        if self._is_answered and self.flow.read_paused and len(self.conn.trailing_data[0]) < _PIPELINED:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._limits.note(self, is_waiting=not self._is_answered, has_begun=False)

    def send_400_response(self, msg: str) -> None:
        self._refuse(ApiError(400, "The request is not valid HTTP/1.1.", code="invalid_http"))

    def _refuse(self, error: ApiError) -> None:
        body = json.dumps(error.body).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        head = h11.Response(status_code=error.status, headers=[*headers, ("connection", "close")])
        with suppress(h11.LocalProtocolError):  # a reply has begun, so it can only be ended
            for part in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(part) or b"")
        self.transport.close()

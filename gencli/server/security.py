"""Access control: Host header, API key, other origins. Pure ASGI, so that disconnects pass through."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gencli.server.wire.errors import ApiError

__all__ = ["App", "Guard", "Message", "Receive", "Rules", "Scope", "Send", "header", "send_error"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Paths without a key: the page is the same file on every server and contains no data of this one. Its
# requests need the key.
_OPEN = ("/health", "/")
_HEADERS, _HEADER_BYTES = 100, 1 << 15
_DRAIN = 2.0  # seconds in which the rest of a rejected body is read
_SINGLE = (
    b"host", b"content-type", b"content-length", b"content-encoding", b"transfer-encoding", b"authorization",
    b"x-api-key", b"origin",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rules:
    """`key`: "" requires none. `hosts`: allowed names besides localhost and addresses.

    `origins`: of other pages.
    """

    key: str = ""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def knows_host(self, given: str) -> bool:
        """Whether the Host header is an address of this machine, localhost, or one of `hosts`.

        This rejects a page of another site whose own domain name resolves to this machine (DNS rebinding).
        """
        name = given.rpartition("]")[0].lstrip("[") if given.startswith("[") else given.partition(":")[0]
        if name.casefold() in ("localhost", *map(str.casefold, self.hosts)) or "*" in self.hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def takes_key(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a header has the key, in time that does not depend on the key."""
        given = header(headers, "authorization")
        scheme, _, token = given.partition(" ")
        token = token if scheme.casefold() == "bearer" else header(headers, "x-api-key")
        digests = (hashlib.sha256(text.strip().encode()).digest() for text in (token, self.key))
        return not self.key or hmac.compare_digest(*digests)


def header(headers: Iterable[tuple[bytes, bytes]], name: str) -> str:
    """Return the value of a header; "" if it is missing."""
    return next((value.decode("latin-1") for key, value in headers if key == name.encode()), "")


class Guard:
    """Checks each request before the app sees it; adds its id, and the headers for other origins."""

    def __init__(
        self, app: App, rules: Rules, on_status: Callable[[int], None] = lambda status: None
    ) -> None:
        self._app, self._rules, self._on_status = app, rules, on_status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reply to a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["request_id"] = secrets.token_hex(12)
        origin = header(scope["headers"], "origin")
        allowed = origin if origin and ({origin, "*"} & {*self._rules.origins}) else ""

        rest = _Rest(scope, receive)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] >= 400 and message["status"] != 408:
                    await rest.drop()
                self._on_status(message["status"])
                message["headers"] = [*message.get("headers", ()), *_headers(scope["request_id"], allowed)]
            await send(message)

        if allowed and scope["method"] == "OPTIONS":
            await _preflight(answer)
            return
        try:
            self._check(scope)
        except ApiError as error:
            await send_error(answer, error)
            return
        await self._app(scope, rest.receive, answer)

    def _check(self, scope: Scope) -> None:
        headers = scope["headers"]
        _check_form(scope)
        if not self._rules.knows_host(header(headers, "host")):
            raise ApiError(
                403, "This name of the host is not allowed.", code="host_not_allowed",
                hint="Use localhost or an address, or start the server with `allow_host`.",
            )  # fmt: skip
        if scope["path"] not in _OPEN and not self._rules.takes_key(headers):
            raise ApiError(401, "The API key is missing or wrong.", code="invalid_api_key")


class _Rest:
    """Reads the rest of a body that an app has left, for a limited time, before an error is sent.

    Otherwise a client that is still sending would get a connection reset instead of the reply.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        headers = scope["headers"]
        has_body = header(headers, "content-length") not in ("", "0") or header(headers, "transfer-encoding")
        self._is_over = not has_body or bool(header(headers, "expect"))  # with `expect` the client waits

    async def receive(self) -> Message:
        """Return the next message."""
        message = await self._receive()
        self._is_over |= not message.get("more_body")
        return message

    async def drop(self) -> None:
        """Read the rest, for at most two seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN):
                while not self._is_over:
                    await self.receive()


def _check_form(scope: Scope) -> None:
    """Raise ApiError 400 for a request that a proxy, cache or log may parse differently."""
    names = [name for name, _ in scope["headers"]]
    if (
        len(names) > _HEADERS
        or sum(len(name) + len(value) for name, value in scope["headers"]) > _HEADER_BYTES
    ):
        raise ApiError(431, "The request has too many or too long headers.", code="headers_too_large")
    twice = next((name.decode() for name in _SINGLE if names.count(name) > 1), None)
    if twice is not None:
        raise ApiError(400, f"The header {twice} stands twice.", code="invalid_http")
    if b"transfer-encoding" in names and b"content-length" in names:
        raise ApiError(400, "The request has both Content-Length and Transfer-Encoding.", code="invalid_http")
    if scope.get("http_version", "1.1") not in ("1.0", "1.1"):
        raise ApiError(400, "The server speaks HTTP/1.1.", code="invalid_http")


def _headers(request_id: str, origin: str) -> list[tuple[bytes, bytes]]:
    found = [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
    if origin:
        found += [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"origin")]
    return found


async def _preflight(send: Send) -> None:
    headers = [
        (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
        (b"access-control-allow-headers", b"authorization, content-type, x-api-key"),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def send_error(send: Send, error: ApiError) -> None:
    """Send an error as a whole reply."""
    body = json.dumps(error.body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

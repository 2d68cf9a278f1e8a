"""Who may ask: the Host header, the API key, other origins. Pure ASGI, so that disconnects pass through."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from gencli.server.wire.errors import ApiError

__all__ = ["App", "Guard", "Message", "Receive", "Rules", "Scope", "Send", "header", "send_error"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# What needs no key: the page is the same file on every server, and says nothing of this one. What it asks for
# needs the key.
_OPEN = ("/health", "/")


@dataclass(frozen=True, slots=True)
class Rules:
    """`key`: "" asks for none. `hosts`: names beside localhost and addresses. `origins` of other pages."""

    key: str = ""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def knows_host(self, given: str) -> bool:
        """Whether the Host header names this machine by address, as localhost, or as one of `hosts`.

        A page of another site that has its own name point here sends that name, and is refused.
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
        """Whether a header has the key; the time that this takes does not depend on it."""
        given = header(headers, "authorization")
        scheme, _, token = given.partition(" ")
        token = token if scheme.casefold() == "bearer" else header(headers, "x-api-key")
        digests = (hashlib.sha256(text.strip().encode()).digest() for text in (token, self.key))
        return not self.key or hmac.compare_digest(*digests)


def header(headers: Iterable[tuple[bytes, bytes]], name: str) -> str:
    """Return the value of a header; "" without it."""
    return next((value.decode("latin-1") for key, value in headers if key == name.encode()), "")


class Guard:
    """Checks each request before the app sees it, and adds its id and the headers of other origins."""

    def __init__(
        self, app: App, rules: Rules, on_status: Callable[[int], None] = lambda status: None
    ) -> None:
        self._app, self._rules, self._on_status = app, rules, on_status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["request_id"] = secrets.token_hex(12)
        origin = header(scope["headers"], "origin")
        allowed = origin if origin and ({origin, "*"} & {*self._rules.origins}) else ""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
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
        await self._app(scope, receive, answer)

    def _check(self, scope: Scope) -> None:
        headers = scope["headers"]
        if not self._rules.knows_host(header(headers, "host")):
            raise ApiError(
                403, "This name of the host is not allowed.", code="host_not_allowed",
                hint="Use localhost or an address, or start the server with `allow_host`.",
            )  # fmt: skip
        if scope["path"] not in _OPEN and not self._rules.takes_key(headers):
            raise ApiError(401, "The API key is missing or wrong.", code="invalid_api_key")


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

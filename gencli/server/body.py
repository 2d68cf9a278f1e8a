"""The body of a request: its type, size and JSON; and the memory of all bodies together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gencli.errors import GencliError
from gencli.json_reader import JsonLimits, parse_json
from gencli.server.security import Receive, Scope, header
from gencli.server.wire.errors import ApiError

__all__ = ["Bodies", "Disconnected", "parse_body", "read_body"]

_SECONDS, _RATE = 30.0, 1 << 18  # a body has 30 s, and one more second for each 256 KiB received
_VALUES = 1 << 19  # values, by the commas of a body; small lists take 20 times the memory of their text
_FREE = 1 << 16  # bytes of each body that do not count towards the memory of all
_JSON = JsonLimits(max_depth=64, max_digits=100, has_decimals=False)


class Disconnected(Exception):
    """The client has disconnected."""


class Bodies:
    """Limits the memory of the bodies of all unanswered calls: `most` bytes beyond 64 KiB of each.

    Otherwise many clients that never finish a large body would fill the memory.
    """

    def __init__(self, most: int = 256 << 20) -> None:
        self.most, self.held = most, 0

    @contextmanager
    def room(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that counts the bytes of one body until the end of its call.

        It raises ApiError 429.
        """
        mine = 0

        def hold(size: int) -> None:
            nonlocal mine
            more = max(0, size - _FREE) - mine
            if self.held + more > self.most:
                raise ApiError(429, "The server has too many large bodies.", code="bodies_full")
            self.held, mine = self.held + more, mine + more

        try:
            yield hold
        finally:
            self.held -= mine


async def read_body(
    scope: Scope, receive: Receive, most: int, hold: Callable[[int], None] = lambda size: None
) -> bytes:
    """Return the body; `hold` is called with its size while it grows.

    Raises ApiError: 415 for another type, 413 for a body that is too large or has no declared length, 408 for
    one that is too slow.
    """
    headers = scope["headers"]
    kind = header(headers, "content-type").partition(";")[0].strip().casefold()
    if kind != "application/json":
        raise ApiError(415, "The Content-Type has to be application/json.", code="unsupported_media_type")
    if header(headers, "content-encoding").strip().casefold() not in ("", "identity"):
        raise ApiError(415, "The body must not have a Content-Encoding.", code="unsupported_media_type")
    length = header(headers, "content-length")
    if length.isdecimal() and int(length[:18]) > most:
        raise _too_large(most)
    return await _parts(receive, most, hold)


async def _parts(receive: Receive, most: int, hold: Callable[[int], None]) -> bytes:
    parts, size, begin = [], 0, asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(_SECONDS) as limit:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise _too_large(most)
                hold(size)
                if not message.get("more_body"):
                    return b"".join(parts)
                limit.reschedule(begin + _SECONDS + size / _RATE)
    except TimeoutError:
        raise ApiError(
            408, "The body did not come in time.", code="timeout", headers={"connection": "close"}
        ) from None


def parse_body(body: bytes) -> Any:
    """Return the JSON value of a body. Raises ApiError 400."""
    if body.count(b",") > _VALUES:
        raise ApiError(400, f"The body has more than {_VALUES} values.", code="too_large")
    try:
        return parse_json(body.decode(), _JSON)
    except UnicodeDecodeError:
        raise ApiError(400, "The body is not UTF-8 text.", code="invalid_json") from None
    except GencliError as error:
        raise ApiError(400, f"The body is no JSON: {error.message}", code="invalid_json") from None


def _too_large(most: int) -> ApiError:
    return ApiError(
        413, f"The body is larger than {most} bytes.", code="body_too_large", headers={"connection": "close"}
    )

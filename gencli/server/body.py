"""The body of a request: its type, its size, its JSON."""

from __future__ import annotations

import asyncio
from typing import Any

from gencli.errors import GencliError
from gencli.json_reader import JsonLimits, parse_json
from gencli.server.security import Receive, Scope, header
from gencli.server.wire.errors import ApiError

__all__ = ["Disconnected", "parse_body", "read_body"]

_SECONDS = 30.0  # between two parts of a body
_JSON = JsonLimits(max_depth=64, max_digits=100, has_decimals=False)


class Disconnected(Exception):
    """The client has gone."""


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """Return the body. Raises ApiError 415 or 413, also for a body that does not say how long it is."""
    kind = header(scope["headers"], "content-type").partition(";")[0].strip().casefold()
    if kind != "application/json":
        raise ApiError(415, "The Content-Type has to be application/json.", code="unsupported_media_type")
    length = header(scope["headers"], "content-length")
    if length.isdecimal() and int(length[:18]) > most:
        raise _too_large(most)
    parts, size = [], 0
    while True:
        try:
            async with asyncio.timeout(_SECONDS):
                message = await receive()
        except TimeoutError:
            raise ApiError(408, "The body did not come in time.", code="timeout") from None
        if message["type"] == "http.disconnect":
            raise Disconnected
        size += len(message.get("body", b""))
        if size > most:
            raise _too_large(most)
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def parse_body(body: bytes) -> Any:
    """Return the JSON value of a body. Raises ApiError 400."""
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

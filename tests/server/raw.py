"""A client that sends bytes: it can say what no library would send, and reads whatever comes back."""

import asyncio
import json
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shot:
    """What one connection sends, part by part; `allowed` are the first digits of its status."""

    parts: tuple[bytes, ...]
    allowed: str = "4"


@dataclass(frozen=True)
class Reply:
    """An answer: 0 is a connection that was closed without one."""

    status: int
    headers: dict = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0

    @property
    def first(self):
        """The text of the first choice of a completion."""
        return json.loads(self.body)["choices"][0]["text"]

    @property
    def error(self):
        """The error of the answer, {} without one."""
        try:
            return json.loads(self.body)["error"]
        except (ValueError, KeyError, TypeError):
            return {}


def post(body, path="/v1/completions", *, key="k", method="POST", **headers):
    """The bytes of one request; the connection is closed after its answer."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {
        "Host": "localhost", "Content-Type": "application/json", "Authorization": f"Bearer {key}",
        "Connection": "close", "Content-Length": str(len(content)),
    }  # fmt: skip
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}" for name, value in given.items() if value is not None]
    return f"{method} {path} HTTP/1.1\r\n".encode() + "\r\n".join([*lines, "", ""]).encode() + content


async def fire(port, shot, *, seconds=60.0):
    """Send a shot and return the reply; what cannot be sent any more is left out."""
    begin = time.monotonic()
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for part in shot.parts:
                try:
                    writer.write(part)
                    await writer.drain()
                except ConnectionError:
                    break
            return _reply(await _all(reader), time.monotonic() - begin)
        finally:
            writer.transport.abort()


async def _all(reader):
    parts = []
    try:
        while part := await reader.read(1 << 16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def _reply(data, seconds):
    while data.startswith(b"HTTP/1.1 100"):
        data = data.partition(b"\r\n\r\n")[2]
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    if not first:
        return Reply(0, seconds=seconds)
    headers = {name.casefold(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = b"".join(_chunks(body))
    return Reply(int(first.split(" ")[1]), headers, body, seconds)


def _chunks(body):
    while body:
        size, _, body = body.partition(b"\r\n")
        yield body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]

"""One call from its body to the last byte of its reply; a disconnect cancels its work."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from gencli.core.events import Event
from gencli.server.body import Disconnected
from gencli.server.limits import check_traced
from gencli.server.mailbox import Mailbox
from gencli.server.models import Models
from gencli.server.prepare import Prepared
from gencli.server.security import Receive, Scope, Send, send_error
from gencli.server.wire.answers import Answers
from gencli.server.wire.call import Call, Route
from gencli.server.wire.errors import ApiError
from gencli.server.wire.logprobs import TokenNames
from gencli.server.wire.replies import PING, Reply, StreamReply, WholeReply
from gencli.server.wire.response_replies import ResponseStream, ResponseWhole

__all__ = ["Generate"]

T = TypeVar("T")
_Streamed = StreamReply | ResponseStream
_Collected = WholeReply | ResponseWhole
_STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Generate:
    """The ASGI app of a route that generates."""

    def __init__(self, models: Models, route: Route) -> None:
        self._models, self._route = models, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reply to a request."""
        await _Exchange(self._models, self._route, scope, send).run(receive)


class _Exchange:
    """One request. `_has_begun`: the head of the reply is sent, so an error has to be an event of `_open`.

    `_is_traced`: the reply explains tokens.

    `_serving`: the model of the request; before the body is read, the first model.
    """

    def __init__(self, models: Models, route: Route, scope: Scope, send: Send) -> None:
        self._models, self._route, self._scope, self._send_raw = models, route, scope, send
        self._serving = models.get(None)
        self._has_begun = self._is_traced = False
        self._open: _Streamed | None = None

    async def run(self, receive: Receive) -> None:
        models = self._models
        try:
            async with models.body(self._scope, receive) as body:
                await _unless_gone(self._answer(body), receive)
        except Disconnected:
            return
        except Exception as error:
            await self._fail(self._serving.error(error))

    async def _answer(self, body: bytes) -> None:
        read = self._models.read(body, lambda serving, value: serving.call(value, self._route))
        self._serving, call = await read
        with self._serving.admission.enter() as ticket:
            ticket.grow(call.num_samples)
            await self._generate(call)

    async def _generate(self, call: Call) -> None:
        serving = self._serving
        preparer, name = serving.preparer, self._scope["request_id"]
        prepared = await serving.beside(
            lambda: preparer(call, name), fields=call.options.fields, is_slow=preparer.has_structure(call)
        )
        check_traced(prepared.orders, self._models.conditions.limits, serving.spec.context)
        self._is_traced = any(order.request.trace is not None for order in prepared.orders)
        mailbox = serving.thread.open(prepared.orders)
        try:
            events = await self._first(mailbox, call)
            answers = Answers(prepared.shapes, prepared.n)
            reply = self._reply(call, prepared)
            if call.is_stream:
                self._open = self._streamed(reply, answers)
                await self._stream(self._open, answers, mailbox, events)
            else:
                await self._whole(self._collected(reply, answers), answers, mailbox, events)
        finally:
            serving.thread.close(prepared.orders)

    async def _first(self, mailbox: Mailbox, call: Call) -> list[Event]:
        """Wait for the first events; until then an error can have its own status."""
        seconds = self._models.conditions.queue_timeout
        try:
            async with asyncio.timeout(seconds):  # wait_for of Python 3.11 may lose a cancellation
                return await mailbox.take()
        except TimeoutError:
            raise ApiError(
                504, f"The request has waited {seconds:g} s for its turn.", code="queue_timeout"
            ) from None
        except Exception as error:
            raise self._serving.error(error, call.options.fields) from None

    def _reply(self, call: Call, prepared: Prepared) -> Reply:
        serving = self._serving
        names = TokenNames(serving.tokenizer, call.ids_as_text)
        head = (self._scope["request_id"], int(time.time()), serving.name, serving.fingerprint)
        prompts = tuple(order.request.prompt_ids for order in prepared.orders) if call.has_ids else ()
        return Reply(call, *head, names, prepared.echoes, prompts)

    def _streamed(self, reply: Reply, answers: Answers) -> _Streamed:
        is_response = self._route == "responses"
        return ResponseStream(reply, answers) if is_response else StreamReply(reply, answers)

    def _collected(self, reply: Reply, answers: Answers) -> _Collected:
        is_response = self._route == "responses"
        return ResponseWhole(reply, answers) if is_response else WholeReply(reply, answers)

    async def _whole(
        self, whole: _Collected, answers: Answers, mailbox: Mailbox, events: Iterable[Event]
    ) -> None:
        while True:
            for event in events:
                whole.add(event)
            if not answers.num_open:
                break
            events = await mailbox.take()
        body = await self._made(lambda: json.dumps(whole.body(), ensure_ascii=False).encode())
        await self._begin(200, [(b"content-type", b"application/json"), *_length(body)])
        await self._send({"type": "http.response.body", "body": body})

    async def _stream(
        self, stream: _Streamed, answers: Answers, mailbox: Mailbox, events: Iterable[Event]
    ) -> None:
        data = _frames(stream, stream.begin())
        while True:
            added = chain.from_iterable(map(stream.add, events))
            data += await self._made(partial(_frames, stream, added))
            if not self._has_begun:  # after the first events, which may be an error
                await self._begin(200, _STREAM)
            if not answers.num_open:
                break
            if data:
                await self._data(data)
            data, events = b"", await self._next(mailbox)
        await self._data(data + _frames(stream, stream.end()) + stream.done, is_last=True)

    async def _made(self, make: Callable[[], T]) -> T:
        """Return `make()`; with a trace, which may be slow to write, outside of the event loop."""
        return await self._serving.beside(make, is_slow=True) if self._is_traced else make()

    async def _next(self, mailbox: Mailbox) -> list[Event]:
        """Wait for events, sending a comment to the stream from time to time."""
        while True:
            try:
                async with asyncio.timeout(self._models.conditions.ping):
                    return await mailbox.take()
            except TimeoutError:
                await self._data(PING)

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _data(self, body: bytes, *, is_last: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})

    async def _send(self, message: dict[str, Any]) -> None:
        """Send; a client that reads nothing for too long counts as disconnected."""
        try:
            async with asyncio.timeout(self._models.conditions.write_timeout):
                await self._send_raw(message)
        except (TimeoutError, OSError):
            raise Disconnected from None

    async def _fail(self, error: ApiError) -> None:
        """Send an error: as a whole reply, or as an event of a stream that has begun."""
        try:
            if self._has_begun and self._open is not None:
                await self._data(self._open.error(error) + self._open.done, is_last=True)
            else:
                async with asyncio.timeout(self._models.conditions.write_timeout):
                    await send_error(self._send_raw, error)
        except (Disconnected, TimeoutError, OSError):
            return


def _frames(stream: _Streamed, chunks: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(map(stream.frame, chunks))


def _length(body: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", str(len(body)).encode())]


async def _unless_gone(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Run the work; if the client disconnects, cancel it and raise Disconnected."""
    main, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((main, gone), return_when=asyncio.FIRST_COMPLETED)
        has_ended = main.done()
    finally:
        main.cancel()
        gone.cancel()
        await asyncio.wait((main, gone))
    try:
        if not has_ended:
            raise Disconnected
        main.result()
    finally:
        del main, gone  # a task and the traceback of its error would keep each other alive


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

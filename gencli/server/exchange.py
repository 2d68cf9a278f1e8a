"""One call from its body to the last byte of its reply (a disconnect cancels its work), and replies
without generation: model card, tokens, tokenizer, server properties, effective chain.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from gencli import __version__
from gencli.config.settings import where
from gencli.core.events import Event
from gencli.core.request import Request
from gencli.errors import ModelError
from gencli.models.files.model_card import declared_template
from gencli.server.access import Disconnected, Message, Receive, Scope, Send, check_traced, send_error
from gencli.server.served_models import Models
from gencli.server.serving import Serving
from gencli.server.wire_answers import Answers, TokenStyle
from gencli.server.wire_calls import Call, Route, given_fields
from gencli.server.wire_fields import ApiError, bad_field, unknown_field
from gencli.server.wire_replies import (
    PING,
    ReplyFields,
    ResponseStream,
    ResponseWhole,
    StreamReply,
    WholeReply,
)

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
        await _Exchange(self._models, self._route, scope, send).run(receive)


class _Exchange:
    """One request. `_has_begun`: the head of the reply is sent, so an error is an event of `_begun_stream`.

    `_is_traced`: the reply explains tokens. `_serving`: the model of the request; before the body is read,
    the first model.
    """

    def __init__(self, models: Models, route: Route, scope: Scope, send: Send) -> None:
        self._models, self._route, self._scope, self._send_raw = models, route, scope, send
        self._serving = models.get(None)
        self._has_begun = self._is_traced = False
        self._begun_stream: _Streamed | None = None

    async def run(self, receive: Receive) -> None:
        try:
            async with self._models.body(self._scope, receive) as body:
                await _unless_gone(self._answer(body), receive)
        except Disconnected:
            return
        except Exception as error:
            await self._fail(self._serving.error(error))

    async def _answer(self, body: bytes) -> None:
        self._serving, call = await self._models.read(
            body, lambda serving, value: serving.call(value, self._route)
        )
        with self._serving.admission.enter() as grow:
            grow(call.num_samples)
            await self._generate(call)

    async def _generate(self, call: Call) -> None:
        serving = self._serving
        preparer, name = serving.preparer, self._scope["request_id"]
        prepared = await serving.beside(
            lambda: preparer(call, name), fields=call.options.fields, is_slow=preparer.has_structure(call)
        )
        check_traced(prepared.orders, self._models.conditions.limits, serving.spec.context)
        self._is_traced = any(order.request.trace is not None for order in prepared.orders)
        self._mailbox = serving.thread.open(prepared.orders)
        try:
            events = await self._first_events(call)
            answers = Answers(prepared.shapes, prepared.orders[0].request.n)
            style = TokenStyle(serving.tokenizer, call.ids_as_text, call.is_processed, call.has_bans)
            identity = (name, int(time.time()), serving.name, serving.fingerprint)
            ids = tuple(order.request.prompt_ids for order in prepared.orders) if call.has_ids else ()
            fields = ReplyFields(call, *identity, style, prepared.echoes, ids)
            is_response = self._route == "responses"
            if call.is_stream:
                stream: _Streamed
                stream = ResponseStream(fields, answers) if is_response else StreamReply(fields, answers)
                self._begun_stream = stream
                await self._stream(stream, answers, events)
            else:
                whole: _Collected
                whole = ResponseWhole(fields, answers) if is_response else WholeReply(fields, answers)
                await self._whole(whole, answers, events)
        finally:
            serving.thread.close(prepared.orders)

    async def _first_events(self, call: Call) -> list[Event]:
        # Until the first events an error can have its own status.
        seconds = self._models.conditions.queue_timeout
        try:
            async with asyncio.timeout(seconds):  # wait_for of Python 3.11 may lose a cancellation
                return await self._mailbox.take()
        except TimeoutError:
            message = f"The request has waited {seconds:g} s for its turn."
            raise ApiError(504, message, code="queue_timeout") from None
        except Exception as error:
            raise self._serving.error(error, call.options.fields) from None

    async def _whole(self, whole: _Collected, answers: Answers, events: Iterable[Event]) -> None:
        while True:
            for event in events:
                whole.add(event)
            if not answers.num_open:
                break
            events = await self._mailbox.take()
        body = await self._encoded(lambda: json.dumps(whole.body(), ensure_ascii=False).encode())
        length = str(len(body)).encode()
        await self._begin(200, [(b"content-type", b"application/json"), (b"content-length", length)])
        await self._send({"type": "http.response.body", "body": body})

    async def _stream(self, stream: _Streamed, answers: Answers, events: Iterable[Event]) -> None:
        data = _frames(stream, stream.begin())
        while True:
            added = chain.from_iterable(map(stream.add, events))
            data += await self._encoded(partial(_frames, stream, added))
            if not self._has_begun:  # after the first events, which may be an error
                await self._begin(200, _STREAM)
            if not answers.num_open:
                break
            if data:
                await self._data(data)
            data, events = b"", await self._next_events()
        await self._data(data + _frames(stream, stream.end()) + stream.done, is_last=True)

    async def _encoded(self, make: Callable[[], T]) -> T:
        # A trace may be slow to write, so outside of the event loop.
        return await self._serving.beside(make, is_slow=True) if self._is_traced else make()

    async def _next_events(self) -> list[Event]:
        # A comment is sent to the stream from time to time.
        while True:
            try:
                async with asyncio.timeout(self._models.conditions.ping):
                    return await self._mailbox.take()
            except TimeoutError:
                await self._data(PING)

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _data(self, body: bytes, *, is_last: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})

    async def _send(self, message: Message) -> None:
        # A client that reads nothing for too long counts as disconnected.
        try:
            async with asyncio.timeout(self._models.conditions.write_timeout):
                await self._send_raw(message)
        except (TimeoutError, OSError):
            raise Disconnected from None

    async def _fail(self, error: ApiError) -> None:
        # As a whole reply, or as an event of a stream that has begun.
        with suppress(Disconnected):
            if self._has_begun and self._begun_stream is not None:
                await self._data(self._begun_stream.error(error) + self._begun_stream.done, is_last=True)
            else:
                await send_error(self._send, error)


def _frames(stream: _Streamed, chunks: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(map(stream.frame, chunks))


async def _unless_gone(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    # If the client disconnects, the work is cancelled.
    async def until_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    main, disconnect = asyncio.ensure_future(work), asyncio.ensure_future(until_gone())
    try:
        await asyncio.wait((main, disconnect), return_when=asyncio.FIRST_COMPLETED)
        has_ended = main.done()
    finally:
        main.cancel()
        disconnect.cancel()
        await asyncio.wait((main, disconnect))
    try:
        if not has_ended:
            raise Disconnected
        main.result()
    finally:
        del main, disconnect  # a task and the traceback of its error would keep each other alive


_CHAT = (
    "messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
    "media_io_kwargs", "mm_processor_kwargs",
)  # fmt: skip
_TEXT = ("prompt", "content")
_FLAGS = ("add_special_tokens", "add_special", "return_token_strs", "with_pieces", "parse_special")


def model_card(serving: Serving) -> dict[str, Any]:
    """Return the entry of a model in /v1/models."""
    return {
        "id": serving.name,
        "object": "model",
        "created": int(serving.created),
        "owned_by": "gencli",
        "root": serving.name,
        "parent": None,
        "max_model_len": serving.spec.context,
    }


def tokenize(serving: Serving, body: Any) -> dict[str, Any]:
    """Return the ids of a text (vLLM's `prompt`, llama.cpp's `content`) or of a conversation."""
    body = _object(body, (*_TEXT, *_FLAGS, *_CHAT, "model"))
    flags = {name: body[name] for name in _FLAGS if name in body}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise bad_field(name, "has to be true or false.")
    kinds = [key for key in ("prompt", "content", "messages") if key in body]
    if len(kinds) != 1:
        raise ApiError(400, "The body needs one of prompt, content and messages.", code="missing_field")
    is_llama = kinds == ["content"]
    if kinds == ["messages"]:
        if not flags.get("parse_special", True):
            raise bad_field("parse_special", "is false, but templates write special tokens.")
        call = _call(serving, {key: body[key] for key in (*_CHAT, "model") if key in body})
        text = serving.preparer.render(call, serving.preparer.job(call))
        special = flags.get("add_special_tokens", False)
    else:
        text = body[kinds[0]]
        special = flags.get("add_special", False) if is_llama else flags.get("add_special_tokens", True)
    if not isinstance(text, str):
        raise bad_field(kinds[0], "has to be a text.")
    if len(text) > (limit := serving.conditions.limits.tokenize):
        fault = f"has {len(text)} characters, at most {limit} are allowed."
        raise bad_field(kinds[0], fault, code="too_large")
    is_plain = not flags.get("parse_special", True)
    try:
        ids = serving.preparer.encode(text, special=special, is_plain=is_plain)
    except ModelError as error:
        if not is_plain:
            raise
        raise bad_field("parse_special", f"is false: {error.message}") from None
    if is_llama:
        pieces = [{"id": token, "piece": _text(serving, token)} for token in ids]
        return {"tokens": pieces if flags.get("with_pieces") else list(ids)}
    texts = [_text(serving, token) for token in ids] if flags.get("return_token_strs") else None
    size = serving.spec.context
    return {"count": len(ids), "max_model_len": size, "tokens": list(ids), "token_strs": texts}


def _text(serving: Serving, token: int) -> str:
    return serving.tokenizer.decode([token], skip_special=False)


def _call(serving: Serving, body: Any) -> Call:
    is_chat = isinstance(body, Mapping) and "messages" in body
    return serving.call(body, "chat" if is_chat else "completions")


def detokenize(serving: Serving, body: Any) -> dict[str, Any]:
    """Return the text of ids."""
    ids = _object(body, ("tokens", "model")).get("tokens")
    size = serving.tokenizer.vocab_size
    if not isinstance(ids, list) or not all(type(token) is int and 0 <= token < size for token in ids):
        raise bad_field("tokens", f"has to be a list of token ids, 0 to {size - 1}.")
    text = serving.tokenizer.decode(ids, skip_special=False)
    return {"prompt": text, "content": text}


def tokenizer_info(serving: Serving) -> dict[str, Any]:
    """Return special tokens and chat template, in the form that lm-evaluation-harness requests."""
    tokenizer = serving.tokenizer
    ends = (tokenizer.bos_id, next(iter(tokenizer.eos_ids), None))
    bos, eos = (None if token is None else _text(serving, token) for token in ends)
    return {
        "tokenizer_class": type(tokenizer).__name__,
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": None,
        "chat_template": _template(serving),
    }


def props(serving: Serving) -> dict[str, Any]:
    """Return the properties of a model, in the form that llama.cpp's clients request."""
    return {
        "default_generation_settings": {"n_ctx": serving.spec.context},
        "total_slots": serving.engine.limit,
        "model_path": serving.name,
        "chat_template": _template(serving) or "",
        "build_info": f"gencli {__version__}",
    }


def chain_view(serving: Serving, body: Any) -> dict[str, Any]:
    """Return the effective chain and limits of a body, each value with its origin; nothing is generated."""
    body = given_fields(body)
    if "messages" not in body:
        body.setdefault("prompt", "x")
    call = _call(serving, body)
    job = serving.preparer.job(call)
    run = serving.engine.effective(Request("", (), job.assembly.chain, draw=job.draw))
    has_seed = "seed" in call.options.values or serving.settings["seed"] is not None
    stages = []
    for name, params in run.chain:
        values = {  # the text of a grammar is shortened
            key: value[:200] if isinstance(value, str) else value
            for key, value in params.to_mapping().items()
        }
        # Origins are told without folder names of this machine.
        entries = job.assembly.of_entry(name, params)
        origins = {entry.field: where(entry.origin, entry.said.rpartition("/")[2]) for entry in entries}
        stages.append({"name": name, "values": values, "origins": origins})
    return {
        "stages": stages,
        "sampler": job.method,
        "seed": job.seed if has_seed else None,
        "max_tokens": job.limits.max_tokens,
        "structure": job.structure.kind if job.structure else None,
        "dropped_fields": list(call.options.dropped),
    }


def _template(serving: Serving) -> str | None:
    return declared_template(serving.settings["model"])[0]


def _object(body: Any, names: tuple[str, ...]) -> dict[str, Any]:
    fields = given_fields(body)
    unknown = next((key for key in fields if key not in names), None)
    if unknown is not None:
        raise unknown_field(unknown)
    return fields

"""Answers as JSON: whole replies and the chunks of streams, for chat and completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gencli.core.events import Event, TokenLogprobs
from gencli.server.wire.answers import Answers, Delta, ToolCall, usage_body
from gencli.server.wire.call import Call
from gencli.server.wire.errors import ApiError
from gencli.server.wire.logprobs import TokenNames, chat_logprobs, completion_logprobs

__all__ = ["PING", "Reply", "StreamReply", "WholeReply", "sse"]

_DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def sse(value: Mapping[str, Any]) -> bytes:
    """Return an event of a stream."""
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """What all replies to a call have. `echoes` are the prompts, as text and ids, if the call wants them."""

    call: Call
    id: str
    created: int
    model: str
    fingerprint: str
    names: TokenNames
    echoes: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def head(self, *, is_chunk: bool) -> dict[str, Any]:
        """Return the first fields of a reply or chunk."""
        if self.call.is_chat:
            kind = "chat.completion.chunk" if is_chunk else "chat.completion"
        else:
            kind = "text_completion"
        return {
            "id": f"{'chatcmpl' if self.call.is_chat else 'cmpl'}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    def tool_call(self, index: int, number: int, call: ToolCall) -> dict[str, Any]:
        """Return a tool call of an answer."""
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": f"call_{self.id}{index}{number}", "type": "function", "function": function}


def _notes(call: Call, delta: Delta) -> dict[str, Any]:
    """Return the fields of a choice beyond OpenAI's: what stopped it, its ids, what is wrong with it."""
    found: dict[str, Any] = {}
    if delta.matched is not None:
        found["stop_reason"] = delta.matched
    if delta.faults:
        found["faults"] = list(delta.faults)
    if call.has_ids and delta.ids:
        found["token_ids"] = list(delta.ids)
    return found


@dataclass(slots=True)
class _Texts:
    """The deltas of one answer so far."""

    deltas: list[Delta] = field(default_factory=list)

    def joined(self) -> Delta:
        """Return them as one."""
        each, last = self.deltas, self.deltas[-1]
        return Delta(
            "".join(delta.content for delta in each),
            "".join(delta.reasoning for delta in each),
            last.calls,
            tuple(token_id for delta in each for token_id in delta.ids),
            tuple(entry for delta in each for entry in delta.logprobs),
            last.reason,
            last.matched,
            last.faults,
        )


class WholeReply:
    """Collects the events of a call into one reply."""

    def __init__(self, reply: Reply, answers: Answers) -> None:
        self._reply, self._answers = reply, answers
        self._texts = [_Texts() for _ in range(len(answers))]

    def add(self, event: Event) -> None:
        """Add an event. Raises ApiError for a sample without a result."""
        if found := self._answers.delta(event):
            self._texts[found[0]].deltas.append(found[1])

    def body(self) -> dict[str, Any]:
        """Return the reply, when all samples have ended."""
        choices = [self._choice(index, texts.joined()) for index, texts in enumerate(self._texts)]
        dropped = self._reply.call.options.dropped
        return {
            **self._reply.head(is_chunk=False),
            "choices": choices,
            "usage": usage_body(self._answers.usage),
            **({"dropped_fields": list(dropped)} if dropped else {}),
        }

    def _choice(self, index: int, delta: Delta) -> dict[str, Any]:
        make = self._chat_choice if self._reply.call.is_chat else self._text_choice
        return {**make(index, delta), "finish_reason": delta.reason, **_notes(self._reply.call, delta)}

    def _chat_choice(self, index: int, delta: Delta) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": delta.content, "refusal": None}
        if delta.reasoning:
            message["reasoning_content"] = delta.reasoning
        if delta.calls:
            message["content"] = delta.content or None
            message["tool_calls"] = [
                self._reply.tool_call(index, number, call) for number, call in enumerate(delta.calls)
            ]
        wanted = self._reply.call.logprobs is not None
        logprobs = chat_logprobs(delta.logprobs, self._reply.names) if wanted else None
        return {"index": index, "message": message, "logprobs": logprobs}

    def _text_choice(self, index: int, delta: Delta) -> dict[str, Any]:
        text, ids, entries = _echo(self._reply, self._answers, index)
        logprobs = None
        if self._reply.call.logprobs is not None:
            logprobs = completion_logprobs([*ids, *delta.ids], [*entries, *delta.logprobs], self._reply.names)
        return {"index": index, "text": text + delta.content, "logprobs": logprobs}


def _echo(
    reply: Reply | None, answers: Answers, index: int
) -> tuple[str, Sequence[int], Sequence[TokenLogprobs | None]]:
    """Return the prompt of an answer as text, ids and log-probabilities; nothing without echo."""
    if reply is None or not reply.echoes:
        return "", (), ()
    place = answers.prompt_of(index)
    text, ids = reply.echoes[place]
    scores = answers.scores.get(place)
    return text, ids, scores.scores if scores else [None] * len(ids)


class StreamReply:
    """Turns the events of a call into the chunks of a stream."""

    done = _DONE

    def frame(self, chunk: Mapping[str, Any]) -> bytes:
        """Return the bytes of a chunk."""
        return sse(chunk)

    def error(self, error: ApiError) -> bytes:
        """Return the bytes of an error in the stream."""
        return sse(error.body)

    def __init__(self, reply: Reply, answers: Answers) -> None:
        self._reply, self._answers = reply, answers
        self._offsets = [0] * len(answers)
        self._is_echoed = [not reply.echoes] * len(answers)
        self._has_scores = bool(reply.echoes) and reply.call.logprobs is not None
        self._held: list[tuple[int, Delta]] = []  # until the scores of the prompt are there

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the chunks before any event: the roles."""
        if self._reply.call.is_chat:
            for index in range(len(self._answers)):
                yield self._chunk(self._chat_choice(index, {"role": "assistant", "content": ""}))

    def add(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the chunks of an event. Raises ApiError for a sample without a result."""
        found = self._answers.delta(event)
        waiting = [*self._held, *([found] if found else [])]
        self._held = [entry for entry in waiting if not self._is_ready(entry[0])]
        for index, delta in waiting:
            if self._is_ready(index) and (not delta.is_empty or (self._reply.call.has_ids and delta.ids)):
                choices = self._chat_choices if self._reply.call.is_chat else self._text_choices
                yield from map(self._chunk, choices(index, delta))

    def _is_ready(self, index: int) -> bool:
        return not self._has_scores or self._answers.prompt_of(index) in self._answers.scores

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the chunk after all events: the usage, if it is wanted."""
        if self._reply.call.has_usage:
            usage = usage_body(self._answers.usage)
            yield {**self._reply.head(is_chunk=True), "choices": [], "usage": usage}

    def _chunk(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        usage = {"usage": None} if self._reply.call.has_usage else {}
        dropped = self._reply.call.options.dropped
        notes = {"dropped_fields": list(dropped)} if dropped else {}
        return {**self._reply.head(is_chunk=True), "choices": [choice], **usage, **notes}

    def _chat_choice(
        self, index: int, delta: Mapping[str, Any], of: Delta | None = None, *, reason: str | None = None
    ) -> dict[str, Any]:
        logprobs = None
        if of is not None and self._reply.call.logprobs is not None:
            logprobs = chat_logprobs(of.logprobs, self._reply.names)
        notes = _notes(self._reply.call, of) if of else {}
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason, **notes}

    def _chat_choices(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        """Text first, then each call in two chunks, then the end with an empty delta."""
        texts = {"reasoning_content": delta.reasoning, "content": delta.content}
        added = {key: text for key, text in texts.items() if text}
        if added or delta.logprobs or (self._reply.call.has_ids and delta.ids):
            yield self._chat_choice(index, added, Delta(ids=delta.ids, logprobs=delta.logprobs))
        for number, call in enumerate(delta.calls):
            whole = self._reply.tool_call(index, number, call)
            name = {**whole, "function": {"name": call.name, "arguments": ""}}
            yield self._chat_choice(index, {"tool_calls": [{"index": number, **name}]})
            rest = {"index": number, "function": {"arguments": call.arguments}}
            yield self._chat_choice(index, {"tool_calls": [rest]})
        if delta.reason:
            notes = _notes(self._reply.call, Delta(matched=delta.matched, faults=delta.faults))
            yield {**self._chat_choice(index, {}, reason=delta.reason), **notes}

    def _text_choices(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        is_first, self._is_echoed[index] = not self._is_echoed[index], True
        text, ids, entries = _echo(self._reply if is_first else None, self._answers, index)
        logprobs = None
        if self._reply.call.logprobs is not None and (ids or delta.ids):
            logprobs = completion_logprobs(
                [*ids, *delta.ids],
                [*entries, *delta.logprobs],
                self._reply.names,
                offset=self._offsets[index],
            )
            self._offsets[index] = logprobs["text_offset"][-1] + len(logprobs["tokens"][-1])
        yield {
            "index": index,
            "text": text + delta.content,
            "logprobs": logprobs,
            "finish_reason": delta.reason,
            **_notes(self._reply.call, delta),
        }

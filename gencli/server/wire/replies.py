"""Answers as JSON: whole replies and stream chunks, for chat and completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gencli.core.events import Event, TokenLogprobs
from gencli.server.wire.answers import Answers, Delta, usage_body
from gencli.server.wire.call import Call
from gencli.server.wire.errors import ApiError
from gencli.server.wire.logprobs import (
    LogprobStyle,
    TextOffsets,
    TokenNames,
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
)
from gencli.server.wire.notes import Notes
from gencli.structured.tool_calls import CallPart

__all__ = ["PING", "Reply", "StreamReply", "WholeReply", "sse"]

_DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def sse(value: Mapping[str, Any], *, kind: str = "") -> bytes:
    """Return a server-sent event; `kind` is its name, if the stream has named events."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {kind}\n" * bool(kind) + f"data: {text}\n\n").encode()


@dataclass(frozen=True, slots=True)
class Reply:
    """Fields shared by all replies to a call.

    `echoes`: the prompts as text and ids, if texts begin with them. `prompts`: their ids, if requested.
    """

    call: Call
    id: str
    created: int
    model: str
    fingerprint: str
    names: TokenNames
    echoes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    prompts: tuple[tuple[int, ...], ...] = ()

    def head(self, *, is_chunk: bool) -> dict[str, Any]:
        """Return the common first fields of a reply or chunk."""
        if self.call.is_chat:
            kind = "chat.completion.chunk" if is_chunk else "chat.completion"
        else:
            kind = "text_completion"
        return {
            "id": self.key,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    @property
    def key(self) -> str:
        """The id of the reply."""
        return f"{'chatcmpl' if self.call.is_chat else 'cmpl'}-{self.id}"

    @property
    def style(self) -> LogprobStyle:
        """The format of log-probabilities."""
        return LogprobStyle(self.names, self.call.is_processed, self.call.has_bans)

    @property
    def dropped(self) -> dict[str, Any]:
        """The dropped fields of the body, as a field of the reply."""
        dropped = self.call.options.dropped
        return {"dropped_fields": list(dropped)} if dropped else {}

    def call_id(self, index: int, number: int) -> str:
        """Return the id of call `number` of an answer."""
        return f"call_{self.id}_{index}_{number}"


def _joined(deltas: Sequence[Delta]) -> Delta:
    """Return the deltas of an answer merged into one."""
    last = deltas[-1]
    return Delta(
        "".join(delta.content for delta in deltas),
        "".join(delta.reasoning for delta in deltas),
        tuple(part for delta in deltas for part in delta.calls),
        tuple(token_id for delta in deltas for token_id in delta.ids),
        tuple(entry for delta in deltas for entry in delta.logprobs),
        tuple(view for delta in deltas for view in delta.views),
        last.reason,
        last.matched,
        last.faults,
    )


class WholeReply:
    """Collects the events of a call into one reply."""

    def __init__(self, reply: Reply, answers: Answers) -> None:
        self._reply, self._answers, self._notes = reply, answers, Notes(reply.call, reply.key, reply.names)
        self._deltas: list[list[Delta]] = [[] for _ in range(len(answers))]

    def add(self, event: Event) -> None:
        """Add an event. Raises ApiError for a sample without a result."""
        if found := self._answers.delta(event):
            self._deltas[found[0]].append(found[1])

    def body(self) -> dict[str, Any]:
        """Return the reply, once all samples have ended."""
        reply = self._reply
        return {
            **reply.head(is_chunk=False),
            "choices": [self._choice(index, _joined(deltas)) for index, deltas in enumerate(self._deltas)],
            "usage": usage_body(self._answers.usage),
            **(_prompt_notes(reply, self._answers, 0) if reply.call.is_chat else {}),
            **reply.dropped,
        }

    def _choice(self, index: int, delta: Delta) -> dict[str, Any]:
        make = self._chat_choice if self._reply.call.is_chat else self._text_choice
        return {**make(index, delta), "finish_reason": delta.reason, **self._notes.of(index, delta)}

    def _chat_choice(self, index: int, delta: Delta) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": delta.content, "refusal": None}
        if delta.reasoning:
            message["reasoning_content"] = delta.reasoning
        if delta.calls:
            message["content"] = delta.content or None
            message["tool_calls"] = _tool_calls(self._reply, index, delta.calls)
        wanted = self._reply.call.logprobs is not None
        logprobs = chat_logprobs(delta.logprobs, self._reply.style) if wanted else None
        return {"index": index, "message": message, "logprobs": logprobs}

    def _text_choice(self, index: int, delta: Delta) -> dict[str, Any]:
        text, ids, entries = _echo(self._reply, self._answers, index)
        logprobs = None
        if self._reply.call.logprobs is not None:
            offsets = TextOffsets(self._reply.names.tokenizer, ids, text)
            logprobs = completion_logprobs(
                [*ids, *delta.ids], [*entries, *delta.logprobs], self._reply.style, offsets
            )
        place = self._answers.prompt_of(index)
        notes = _prompt_notes(self._reply, self._answers, place)
        return {"index": index, "text": text + delta.content, "logprobs": logprobs, **notes}


def _tool_calls(reply: Reply, index: int, parts: Sequence[CallPart]) -> list[dict[str, Any]]:
    """Return the tool calls of an answer as JSON."""
    made: list[dict[str, Any]] = []
    for part in parts:
        if part.name:
            function = {"name": part.name, "arguments": ""}
            made.append({"id": reply.call_id(index, part.number), "type": "function", "function": function})
        made[part.number]["function"]["arguments"] += part.arguments
    return made


def _prompt_notes(reply: Reply, answers: Answers, place: int) -> dict[str, Any]:
    """Return additional fields about a prompt: its ids and log-probabilities, if requested."""
    found: dict[str, Any] = {}
    if reply.prompts:
        found["prompt_token_ids"] = list(reply.prompts[place])
    if reply.call.prompt_logprobs is not None and (scores := answers.scores.get(place)):
        found["prompt_logprobs"] = prompt_logprobs(scores.scores, reply.names)
    return found


def _echo(
    reply: Reply | None, answers: Answers, index: int
) -> tuple[str, Sequence[int], Sequence[TokenLogprobs | None]]:
    """Return the prompt of an answer as text, ids and log-probabilities; empty without echo."""
    if reply is None or not reply.echoes:
        return "", (), ()
    place = answers.prompt_of(index)
    text, ids = reply.echoes[place]
    scores = answers.scores.get(place)
    return text, ids, scores.scores if scores else [None] * len(ids)


class StreamReply:
    """Converts the events of a call to the chunks of a stream."""

    done = _DONE

    def __init__(self, reply: Reply, answers: Answers) -> None:
        self._reply, self._answers, self._style = reply, answers, reply.style
        self._notes = Notes(reply.call, reply.key, reply.names)
        self._offsets: dict[int, TextOffsets] = {}
        self._is_begun = [False] * len(answers)
        self._has_scores = bool(reply.echoes) and reply.call.logprobs is not None
        self._held: list[tuple[int, Delta]] = []  # deltas held until the prompt's scores arrive

    def frame(self, chunk: Mapping[str, Any]) -> bytes:
        """Return a chunk as bytes."""
        return sse(chunk)

    def error(self, error: ApiError) -> bytes:
        """Return an error in the stream as bytes."""
        return sse(error.body)

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the chunks before any event, which have the roles."""
        if self._reply.call.is_chat:
            notes = _prompt_notes(self._reply, self._answers, 0)
            for index in range(len(self._answers)):
                choice = self._chat_choice(index, {"role": "assistant", "content": ""})
                yield {**self._chunk(choice), **notes}

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
        """Yield the chunk after all events: the usage, if requested."""
        if self._reply.call.has_usage:
            usage = usage_body(self._answers.usage)
            yield {**self._reply.head(is_chunk=True), "choices": [], "usage": usage}

    def _chunk(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        usage = {"usage": None} if self._reply.call.has_usage else {}
        return {**self._reply.head(is_chunk=True), "choices": [choice], **usage, **self._reply.dropped}

    def _chat_choice(
        self, index: int, delta: Mapping[str, Any], of: Delta | None = None, *, reason: str | None = None
    ) -> dict[str, Any]:
        logprobs = None
        if of is not None and self._reply.call.logprobs is not None:
            logprobs = chat_logprobs(of.logprobs, self._style)
        notes = self._notes.of(index, of) if of else {}
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason, **notes}

    def _chat_choices(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        """Yield choices: first text, then parts of calls, then the end with an empty delta.

        The first choice has the ids, log-probabilities and explanations.
        """
        texts = {"reasoning_content": delta.reasoning, "content": delta.content}
        added = {key: text for key, text in texts.items() if text}
        calls: list[dict[str, Any]] = [{"tool_calls": [self._part(index, part)]} for part in delta.calls]
        about: Delta | None = Delta(ids=delta.ids, logprobs=delta.logprobs, views=delta.views)
        has_tokens = delta.logprobs or delta.views or (self._reply.call.has_ids and delta.ids)
        for each in [*([added] if added or (has_tokens and not calls) else []), *calls]:
            yield self._chat_choice(index, each, about)
            about = None
        if delta.reason:
            notes = self._notes.of(index, Delta(matched=delta.matched, faults=delta.faults))
            yield {**self._chat_choice(index, {}, reason=delta.reason), **notes}

    def _part(self, index: int, part: CallPart) -> dict[str, Any]:
        if not part.name:
            return {"index": part.number, "function": {"arguments": part.arguments}}
        function = {"name": part.name, "arguments": ""}
        call_id = self._reply.call_id(index, part.number)
        return {"index": part.number, "id": call_id, "type": "function", "function": function}

    def _text_choices(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        is_first, self._is_begun[index] = not self._is_begun[index], True
        text, ids, entries = _echo(self._reply if is_first else None, self._answers, index)
        logprobs = None
        if self._reply.call.logprobs is not None and (ids or delta.ids):
            if index not in self._offsets:
                self._offsets[index] = TextOffsets(self._reply.names.tokenizer, ids, text)
            logprobs = completion_logprobs(
                [*ids, *delta.ids], [*entries, *delta.logprobs], self._style, self._offsets[index]
            )
        place = self._answers.prompt_of(index)
        yield {
            "index": index,
            "text": text + delta.content,
            "logprobs": logprobs,
            "finish_reason": delta.reason,
            **(_prompt_notes(self._reply, self._answers, place) if is_first else {}),
            **self._notes.of(index, delta),
        }

"""Answers as JSON: whole replies and stream chunks, for chat, completions and /v1/responses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gencli.core.events import Event, TokenLogprobs
from gencli.explain.token_record import records
from gencli.server.wire_answers import (
    AnswerDelta,
    Answers,
    LogprobStyle,
    TextOffsets,
    TokenNames,
    Usage,
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
    token_entries,
    usage_body,
)
from gencli.server.wire_calls import Call
from gencli.server.wire_fields import ApiError
from gencli.structured.tool_calls import CallPart

_DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def sse(value: Mapping[str, Any], *, kind: str = "") -> bytes:
    """Return a server-sent event; `kind` is its name, if the stream has named events."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {kind}\n" * bool(kind) + f"data: {text}\n\n").encode()


@dataclass(frozen=True, slots=True)
class ReplyFields:
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


def _joined(deltas: Sequence[AnswerDelta]) -> AnswerDelta:
    """Return the deltas of an answer merged into one."""
    last = deltas[-1]
    return AnswerDelta(
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

    def __init__(self, reply: ReplyFields, answers: Answers) -> None:
        self._reply, self._answers, self._notes = reply, answers, Notes(reply.call, reply.key, reply.names)
        self._deltas: list[list[AnswerDelta]] = [[] for _ in range(len(answers))]

    def add(self, event: Event) -> None:
        """Add an event. Raises ApiError for a sample without a result."""
        if answer := self._answers.delta(event):
            index, delta = answer
            self._deltas[index].append(delta)

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

    def _choice(self, index: int, delta: AnswerDelta) -> dict[str, Any]:
        make = self._chat_choice if self._reply.call.is_chat else self._text_choice
        return {**make(index, delta), "finish_reason": delta.reason, **self._notes.of(index, delta)}

    def _chat_choice(self, index: int, delta: AnswerDelta) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": delta.content, "refusal": None}
        if delta.reasoning:
            message["reasoning_content"] = delta.reasoning
        if delta.calls:
            message["content"] = delta.content or None
            message["tool_calls"] = _tool_calls(self._reply, index, delta.calls)
        wanted = self._reply.call.logprobs is not None
        logprobs = chat_logprobs(delta.logprobs, self._reply.style) if wanted else None
        return {"index": index, "message": message, "logprobs": logprobs}

    def _text_choice(self, index: int, delta: AnswerDelta) -> dict[str, Any]:
        text, ids, entries = _echo(self._reply, self._answers, index)
        logprobs = None
        if self._reply.call.logprobs is not None:
            offsets = TextOffsets(self._reply.names.tokenizer, ids, text)
            logprobs = completion_logprobs(
                [*ids, *delta.ids], [*entries, *delta.logprobs], self._reply.style, offsets
            )
        notes = _prompt_notes(self._reply, self._answers, self._answers.prompt_of(index))
        return {"index": index, "text": text + delta.content, "logprobs": logprobs, **notes}


def _tool_calls(reply: ReplyFields, index: int, parts: Sequence[CallPart]) -> list[dict[str, Any]]:
    """Return the tool calls of an answer as JSON."""
    calls: list[dict[str, Any]] = []
    for part in parts:
        if part.name:
            function = {"name": part.name, "arguments": ""}
            calls.append({"id": reply.call_id(index, part.number), "type": "function", "function": function})
        calls[part.number]["function"]["arguments"] += part.arguments
    return calls


def _prompt_notes(reply: ReplyFields, answers: Answers, prompt: int) -> dict[str, Any]:
    """Return additional fields about a prompt: its ids and log-probabilities, if requested."""
    notes: dict[str, Any] = {}
    if reply.prompts:
        notes["prompt_token_ids"] = list(reply.prompts[prompt])
    if reply.call.prompt_logprobs is not None and (scores := answers.scores.get(prompt)):
        notes["prompt_logprobs"] = prompt_logprobs(scores.scores, reply.names)
    return notes


def _echo(
    reply: ReplyFields | None, answers: Answers, index: int
) -> tuple[str, Sequence[int], Sequence[TokenLogprobs | None]]:
    """Return the prompt of an answer as text, ids and log-probabilities; empty without echo."""
    if reply is None or not reply.echoes:
        return "", (), ()
    prompt = answers.prompt_of(index)
    text, ids = reply.echoes[prompt]
    scores = answers.scores.get(prompt)
    return text, ids, scores.scores if scores else [None] * len(ids)


class StreamReply:
    """Converts the events of a call to the chunks of a stream."""

    done = _DONE

    def __init__(self, reply: ReplyFields, answers: Answers) -> None:
        self._reply, self._answers, self._style = reply, answers, reply.style
        self._notes = Notes(reply.call, reply.key, reply.names)
        self._offsets: dict[int, TextOffsets] = {}
        self._is_begun = [False] * len(answers)
        self._has_scores = bool(reply.echoes) and reply.call.logprobs is not None
        self._held: list[tuple[int, AnswerDelta]] = []  # deltas held until the prompt's scores arrive

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
        answer = self._answers.delta(event)
        waiting = [*self._held, *([answer] if answer else [])]
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
        self,
        index: int,
        delta: Mapping[str, Any],
        of: AnswerDelta | None = None,
        *,
        reason: str | None = None,
    ) -> dict[str, Any]:
        logprobs = None
        if of is not None and self._reply.call.logprobs is not None:
            logprobs = chat_logprobs(of.logprobs, self._style)
        notes = self._notes.of(index, of) if of else {}
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason, **notes}

    def _chat_choices(self, index: int, delta: AnswerDelta) -> Iterator[dict[str, Any]]:
        """Yield choices: first text, then parts of calls, then the end with an empty delta.

        The first choice has the ids, log-probabilities and explanations.
        """
        texts = {"reasoning_content": delta.reasoning, "content": delta.content}
        added = {key: text for key, text in texts.items() if text}
        calls: list[dict[str, Any]] = [{"tool_calls": [self._part(index, part)]} for part in delta.calls]
        about: AnswerDelta | None = AnswerDelta(ids=delta.ids, logprobs=delta.logprobs, views=delta.views)
        has_tokens = delta.logprobs or delta.views or (self._reply.call.has_ids and delta.ids)
        for content in [*([added] if added or (has_tokens and not calls) else []), *calls]:
            yield self._chat_choice(index, content, about)
            about = None
        if delta.reason:
            notes = self._notes.of(index, AnswerDelta(matched=delta.matched, faults=delta.faults))
            yield {**self._chat_choice(index, {}, reason=delta.reason), **notes}

    def _part(self, index: int, part: CallPart) -> dict[str, Any]:
        if not part.name:
            return {"index": part.number, "function": {"arguments": part.arguments}}
        function = {"name": part.name, "arguments": ""}
        call_id = self._reply.call_id(index, part.number)
        return {"index": part.number, "id": call_id, "type": "function", "function": function}

    def _text_choices(self, index: int, delta: AnswerDelta) -> Iterator[dict[str, Any]]:
        is_first, self._is_begun[index] = not self._is_begun[index], True
        text, ids, entries = _echo(self._reply if is_first else None, self._answers, index)
        logprobs = None
        if self._reply.call.logprobs is not None and (ids or delta.ids):
            if index not in self._offsets:
                self._offsets[index] = TextOffsets(self._reply.names.tokenizer, ids, text)
            logprobs = completion_logprobs(
                [*ids, *delta.ids], [*entries, *delta.logprobs], self._style, self._offsets[index]
            )
        prompt = self._answers.prompt_of(index)
        yield {
            "index": index,
            "text": text + delta.content,
            "logprobs": logprobs,
            "finish_reason": delta.reason,
            **(_prompt_notes(self._reply, self._answers, prompt) if is_first else {}),
            **self._notes.of(index, delta),
        }


class Notes:
    """Makes the additional fields of choices, in the reply with id `key`; counts explained tokens."""

    def __init__(self, call: Call, key: str, names: TokenNames) -> None:
        self._call, self._key, self._names = call, key, names
        self._positions = Counter[int]()

    def of(self, index: int, delta: AnswerDelta) -> dict[str, Any]:
        """Return the additional fields for an increment of a choice."""
        fields: dict[str, Any] = {}
        if delta.matched is not None:
            fields["stop_reason"] = delta.matched
        if delta.faults:
            fields["faults"] = list(delta.faults)
        if self._call.has_ids and delta.ids:
            fields["token_ids"] = list(delta.ids)
        if delta.views:
            first, self._positions[index] = self._positions[index], self._positions[index] + len(delta.views)
            fields["trace"] = records(
                delta.views, self._names.tokenizer, run=self._key, sample=index, first=first
            )
        return fields


class _Output:
    """The output items of an answer: reasoning, a message, calls, in this order."""

    def __init__(self, reply: ReplyFields) -> None:
        self.reply = reply
        self.reasoning = self.text = self.arguments = ""
        self.logprobs: list[dict[str, Any]] = []  # log-probabilities of the text
        self.items: list[dict[str, Any]] = []
        self.reason = ""
        self.faults: tuple[str, ...] = ()

    def message(self, *, is_done: bool) -> dict[str, Any]:
        return {
            "type": "message",
            "id": f"msg_{self.reply.id}",
            "role": "assistant",
            "status": self.status() if is_done else "in_progress",
            "content": [self.part(self.text, self.logprobs)] if is_done else [],
        }

    @staticmethod
    def part(text: str, logprobs: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": [*logprobs]}

    def thoughts(self) -> dict[str, Any]:
        content = [{"type": "reasoning_text", "text": self.reasoning}]
        return {"type": "reasoning", "id": f"rs_{self.reply.id}", "summary": [], "content": content}

    def call(self, number: int, name: str, *, is_done: bool) -> dict[str, Any]:
        return {
            "type": "function_call",
            "id": f"fc_{self.reply.id}_{number}",
            "call_id": self.reply.call_id(0, number),
            "name": name,
            "arguments": self.arguments if is_done else "",
            "status": self.status() if is_done else "in_progress",
        }

    def response(self, status: str, usage: Usage | None = None) -> dict[str, Any]:
        """Return the response object."""
        values = self.reply.call.options.values
        is_cut = status == "incomplete"
        return {
            "id": f"resp_{self.reply.id}",
            "object": "response",
            "created_at": self.reply.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "instructions": None,
            "max_output_tokens": values.get("max_tokens"),
            "metadata": {},
            "model": self.reply.model,
            "output": list(self.items),
            "parallel_tool_calls": not self.reply.call.has_one_call,
            "previous_response_id": None,
            "store": False,
            "temperature": values.get("temperature"),
            "tool_choice": values.get("tool_choice", "auto"),
            "tools": [
                {"type": "function", "parameters": None, "strict": None, **tool.get("function", tool)}
                for tool in json.loads(values.get("tools", "[]"))
            ],
            "top_p": values.get("top_p"),
            "usage": _usage(usage) if usage else None,
            **self.reply.dropped,
            **({"faults": list(self.faults)} if self.faults else {}),
        }

    def status(self) -> str:
        """Return the status of the answer and of its last item, which may be incomplete."""
        return "incomplete" if self.reason == "length" else "completed"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.num_cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }


class ResponseStream:
    """Converts the events of a call to the events of a stream, numbered from 0.

    The items of the answer begin and end one after another; `_open` is the kind of the current item.
    """

    done = b""

    def __init__(self, reply: ReplyFields, answers: Answers) -> None:
        self._answers, self._output = answers, _Output(reply)
        self._style = reply.style
        self._number = 0
        self._open: Literal["", "message", "call"] = ""
        self._call = CallPart(0)  # the call that has begun
        self._logprobs: list[dict[str, Any]] = []  # log-probabilities of tokens without text of their own

    def frame(self, chunk: Mapping[str, Any]) -> bytes:
        """Return an event as bytes."""
        return sse(chunk, kind=chunk["type"])

    def error(self, error: ApiError) -> bytes:
        """Return an error in the stream as bytes."""
        about = {"code": error.code, "message": error.message, "param": error.param}
        return self.frame(self._event("error", **about))

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the events before any text."""
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._output.response("in_progress"))

    def add(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the stream's events for an event of the engine. Raises ApiError for a failed text."""
        if (answer := self._answers.delta(event)) is None:
            return
        (_, delta), output = answer, self._output
        output.reasoning += delta.reasoning
        if not delta.reasoning and not delta.calls and self._open != "call":
            self._logprobs += token_entries(delta.logprobs, self._style)
        if delta.content:
            yield from self._add_text(delta.content)
        for part in delta.calls:
            yield from self._add_call(part)
        if delta.reason:
            output.faults = delta.faults or ()
            yield from self._end(delta.reason)

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the last event."""
        status = self._output.status()
        yield self._event(f"response.{status}", response=self._output.response(status, self._answers.usage))

    def _add_text(self, text: str) -> Iterator[dict[str, Any]]:
        output = self._output
        if self._open != "message":
            yield from self._begin_message()
        output.text += text
        logprobs = self._take_logprobs()
        yield self._event("response.output_text.delta", **self._place(), delta=text, logprobs=logprobs)

    def _take_logprobs(self) -> list[dict[str, Any]]:
        taken, self._logprobs = self._logprobs, []
        self._output.logprobs += taken
        return taken

    def _begin_message(self) -> Iterator[dict[str, Any]]:
        """Begin the message, after closing the reasoning."""
        yield from self._close_reasoning()
        self._open = "message"
        yield self._item_event("added", self._output.message(is_done=False))
        yield self._event("response.content_part.added", **self._place(), part=self._output.part(""))

    def _close_reasoning(self) -> Iterator[dict[str, Any]]:
        output = self._output
        if output.reasoning and not output.items:
            item = output.thoughts()
            yield self._item_event("added", {**item, "content": []})
            yield from self._done(item)

    def _add_call(self, part: CallPart) -> Iterator[dict[str, Any]]:
        output = self._output
        if part.name:
            yield from self._close()
            yield from self._close_reasoning()
            self._open, self._call, output.arguments = "call", part, ""
            yield self._item_event("added", output.call(part.number, part.name, is_done=False))
            return
        output.arguments += part.arguments
        kind = "response.function_call_arguments.delta"
        yield self._event(kind, **self._call_place(), delta=part.arguments)

    def _end(self, reason: str) -> Iterator[dict[str, Any]]:
        """End the answer; an empty answer is an empty message."""
        if not self._open:
            yield from self._begin_message()
        self._output.reason = reason
        yield from self._close()

    def _close(self) -> Iterator[dict[str, Any]]:
        """End the current item."""
        output = self._output
        if self._open == "message":
            self._take_logprobs()
            done = {"text": output.text, "logprobs": output.logprobs}
            yield self._event("response.output_text.done", **self._place(), **done)
            part = output.part(output.text, output.logprobs)
            yield self._event("response.content_part.done", **self._place(), part=part)
            yield from self._done(output.message(is_done=True))
        elif self._open == "call":
            name, kind = self._call.name, "response.function_call_arguments.done"
            yield self._event(kind, **self._call_place(), name=name, arguments=output.arguments)
            yield from self._done(output.call(self._call.number, name, is_done=True))
        self._open = ""

    def _done(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield self._item_event("done", item)
        self._output.items.append(item)

    def _item_event(self, what: str, item: dict[str, Any]) -> dict[str, Any]:
        return self._event(f"response.output_item.{what}", output_index=len(self._output.items), item=item)

    def _place(self) -> dict[str, Any]:
        index = len(self._output.items)
        return {"item_id": f"msg_{self._output.reply.id}", "output_index": index, "content_index": 0}

    def _call_place(self) -> dict[str, Any]:
        item = f"fc_{self._output.reply.id}_{self._call.number}"
        return {"item_id": item, "output_index": len(self._output.items)}

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}


class ResponseWhole:
    """Collects the events of a call into one response: the response in the stream's last event."""

    def __init__(self, reply: ReplyFields, answers: Answers) -> None:
        self._stream = ResponseStream(reply, answers)

    def add(self, event: Event) -> None:
        """Add an event. Raises ApiError for a failed text."""
        for _ in self._stream.add(event):
            pass

    def body(self) -> dict[str, Any]:
        """Return the response, once the text has ended."""
        (last,) = self._stream.end()
        response: dict[str, Any] = last["response"]
        return response

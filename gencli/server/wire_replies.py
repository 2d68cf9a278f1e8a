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
    TextOffsets,
    TokenStyle,
    Usage,
    chat_logprobs,
    completion_logprobs,
    joined_deltas,
    prompt_logprobs,
    token_entries,
    usage_body,
)
from gencli.server.wire_calls import Call
from gencli.server.wire_fields import ApiError
from gencli.structured.tool_calls import CallPart

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
    style: TokenStyle
    echoes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    prompts: tuple[tuple[int, ...], ...] = ()

    def head(self, *, is_chunk: bool) -> dict[str, Any]:
        of_chat = "chat.completion.chunk" if is_chunk else "chat.completion"
        return {
            "id": self.key,
            "object": of_chat if self.call.is_chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    @property
    def key(self) -> str:
        return f"{'chatcmpl' if self.call.is_chat else 'cmpl'}-{self.id}"

    @property
    def dropped(self) -> dict[str, Any]:
        """The dropped fields of the body, as a field of the reply."""
        dropped = self.call.options.dropped
        return {"dropped_fields": list(dropped)} if dropped else {}

    def call_id(self, index: int, number: int) -> str:
        return f"call_{self.id}_{index}_{number}"

    def call_head(self, index: int, part: CallPart) -> dict[str, Any]:
        """Return the beginning of a tool call, to which its arguments are added."""
        function = {"name": part.name, "arguments": ""}
        return {"id": self.call_id(index, part.number), "type": "function", "function": function}


class _Choices:
    """What whole replies and streams share: choices of completions, and additional fields of all choices."""

    def __init__(self, reply: ReplyFields, answers: Answers) -> None:
        self._reply, self._answers, self._style = reply, answers, reply.style
        self._offsets: dict[int, TextOffsets] = {}
        self._num_explained = Counter[int]()  # tokens by choice

    def _text_choice(self, index: int, delta: AnswerDelta, *, has_echo: bool) -> dict[str, Any]:
        text, ids = "", tuple[int, ...]()
        entries: Sequence[TokenLogprobs | None] = ()
        if has_echo and self._reply.echoes:
            prompt = self._answers.prompt_of(index)
            text, ids = self._reply.echoes[prompt]
            scores = self._answers.scores.get(prompt)
            entries = scores.scores if scores else [None] * len(ids)
        logprobs = None
        if self._reply.call.logprobs is not None and (ids or delta.ids or not self._reply.call.is_stream):
            if index not in self._offsets:
                self._offsets[index] = TextOffsets(self._style.tokenizer, ids, text)
            entries = [*entries, *delta.logprobs]
            logprobs = completion_logprobs([*ids, *delta.ids], entries, self._style, self._offsets[index])
        return {"index": index, "text": text + delta.content, "logprobs": logprobs}

    def _prompt_notes(self, prompt: int) -> dict[str, Any]:
        # The ids of a prompt and its log-probabilities, if requested.
        notes: dict[str, Any] = {}
        if self._reply.prompts:
            notes["prompt_token_ids"] = list(self._reply.prompts[prompt])
        if self._reply.call.prompt_logprobs is not None and (scores := self._answers.scores.get(prompt)):
            notes["prompt_logprobs"] = prompt_logprobs(scores.scores, self._style)
        return notes

    def _notes(self, index: int, delta: AnswerDelta) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if delta.matched is not None:
            fields["stop_reason"] = delta.matched
        if delta.faults:
            fields["faults"] = list(delta.faults)
        if self._reply.call.has_ids and delta.ids:
            fields["token_ids"] = list(delta.ids)
        if delta.views:
            first, tokenizer = self._num_explained[index], self._style.tokenizer
            self._num_explained[index] += len(delta.views)
            fields["trace"] = records(delta.views, tokenizer, run=self._reply.key, sample=index, first=first)
        return fields


class WholeReply(_Choices):
    """Collects the events of a call into one reply."""

    def __init__(self, reply: ReplyFields, answers: Answers) -> None:
        super().__init__(reply, answers)
        self._deltas: list[list[AnswerDelta]] = [[] for _ in range(len(answers))]

    def add(self, event: Event) -> None:
        """Add an event. Raises ApiError for a sample without a result."""
        if answer := self._answers.delta(event):
            index, delta = answer
            self._deltas[index].append(delta)

    def body(self) -> dict[str, Any]:
        """Return the reply, once all samples have ended."""
        answers = map(joined_deltas, self._deltas)
        return {
            **self._reply.head(is_chunk=False),
            "choices": [self._choice(index, answer) for index, answer in enumerate(answers)],
            "usage": usage_body(self._answers.usage),
            **(self._prompt_notes(0) if self._reply.call.is_chat else {}),
            **self._reply.dropped,
        }

    def _choice(self, index: int, delta: AnswerDelta) -> dict[str, Any]:
        if self._reply.call.is_chat:
            choice = self._chat_choice(index, delta)
        else:
            notes = self._prompt_notes(self._answers.prompt_of(index))
            choice = {**self._text_choice(index, delta, has_echo=True), **notes}
        return {**choice, "finish_reason": delta.reason, **self._notes(index, delta)}

    def _chat_choice(self, index: int, delta: AnswerDelta) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": delta.content, "refusal": None}
        if delta.reasoning:
            message["reasoning_content"] = delta.reasoning
        if delta.calls:
            message["content"] = delta.content or None
            calls = message["tool_calls"] = list[dict[str, Any]]()
            for part in delta.calls:
                if part.name:
                    calls.append(self._reply.call_head(index, part))
                calls[part.number]["function"]["arguments"] += part.arguments
        wanted = self._reply.call.logprobs is not None
        logprobs = chat_logprobs(delta.logprobs, self._style) if wanted else None
        return {"index": index, "message": message, "logprobs": logprobs}


class StreamReply(_Choices):
    """Converts the events of a call to the chunks of a stream."""

    done = b"data: [DONE]\n\n"

    def __init__(self, reply: ReplyFields, answers: Answers) -> None:
        super().__init__(reply, answers)
        self._is_begun = [False] * len(answers)
        self._has_scores = bool(reply.echoes) and reply.call.logprobs is not None
        self._held: list[tuple[int, AnswerDelta]] = []  # deltas held until the prompt's scores arrive

    def frame(self, chunk: Mapping[str, Any]) -> bytes:
        return sse(chunk)

    def error(self, error: ApiError) -> bytes:
        return sse(error.body)

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the chunks before any event, which have the roles."""
        if self._reply.call.is_chat:
            notes = self._prompt_notes(0)
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
        self, index: int, delta: Mapping[str, Any], of: AnswerDelta | None = None, reason: str | None = None
    ) -> dict[str, Any]:
        logprobs = None
        if of is not None and self._reply.call.logprobs is not None:
            logprobs = chat_logprobs(of.logprobs, self._style)
        notes = self._notes(index, of) if of else {}
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason, **notes}

    def _chat_choices(self, index: int, delta: AnswerDelta) -> Iterator[dict[str, Any]]:
        # First text, then parts of calls, then the end with an empty delta. The first choice has the ids,
        # log-probabilities and explanations.
        texts = {"reasoning_content": delta.reasoning, "content": delta.content}
        added = {key: text for key, text in texts.items() if text}
        calls: list[dict[str, Any]] = []
        for part in delta.calls:
            arguments = {"function": {"arguments": part.arguments}}
            head = self._reply.call_head(index, part) if part.name else arguments
            calls.append({"tool_calls": [{"index": part.number, **head}]})
        about: AnswerDelta | None = AnswerDelta(ids=delta.ids, logprobs=delta.logprobs, views=delta.views)
        has_tokens = delta.logprobs or delta.views or (self._reply.call.has_ids and delta.ids)
        for content in [*([added] if added or (has_tokens and not calls) else []), *calls]:
            yield self._chat_choice(index, content, about)
            about = None
        if delta.reason:
            notes = self._notes(index, AnswerDelta(matched=delta.matched, faults=delta.faults))
            yield {**self._chat_choice(index, {}, reason=delta.reason), **notes}

    def _text_choices(self, index: int, delta: AnswerDelta) -> Iterator[dict[str, Any]]:
        is_first, self._is_begun[index] = not self._is_begun[index], True
        yield {
            **self._text_choice(index, delta, has_echo=is_first),
            "finish_reason": delta.reason,
            **(self._prompt_notes(self._answers.prompt_of(index)) if is_first else {}),
            **self._notes(index, delta),
        }


class ResponseStream:
    """Converts the events of a call to the events of a stream, numbered from 0.

    The output items of the answer are reasoning, a message, and calls, in this order. They begin and end one
    after another; `_open` is the kind of the current item.
    """

    done = b""

    def __init__(self, reply: ReplyFields, answers: Answers) -> None:
        self._reply, self._answers, self._style = reply, answers, reply.style
        self._number = 0  # of the next event
        self._open: Literal["", "message", "call"] = ""
        self._call = CallPart(0)  # the call that has begun
        self._reasoning = self._text = self._arguments = self._reason = ""
        self._logprobs: list[dict[str, Any]] = []  # log-probabilities of the text
        self._held: list[dict[str, Any]] = []  # log-probabilities of tokens without text of their own
        self._items: list[dict[str, Any]] = []
        self._faults: tuple[str, ...] = ()

    def frame(self, chunk: Mapping[str, Any]) -> bytes:
        return sse(chunk, kind=chunk["type"])

    def error(self, error: ApiError) -> bytes:
        about = {"code": error.code, "message": error.message, "param": error.param}
        return self.frame(self._event("error", **about))

    def begin(self) -> Iterator[dict[str, Any]]:
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._response("in_progress"))

    def add(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the stream's events for an event of the engine. Raises ApiError for a failed text."""
        if (answer := self._answers.delta(event)) is None:
            return
        delta = answer[1]
        self._reasoning += delta.reasoning
        if not delta.reasoning and not delta.calls and self._open != "call":
            self._held += token_entries(delta.logprobs, self._style)
        if delta.content:
            if self._open != "message":
                yield from self._begin_message()
            self._text += delta.content
            about = {"delta": delta.content, "logprobs": self._take_logprobs()}
            yield self._event("response.output_text.delta", **self._place(), **about)
        for part in delta.calls:
            if part.name:
                yield from self._close()
                yield from self._close_reasoning()
                self._open, self._call, self._arguments = "call", part, ""
                yield self._item_event("added", self._call_item(is_done=False))
            else:
                self._arguments += part.arguments
                kind = "response.function_call_arguments.delta"
                yield self._event(kind, **self._place(), delta=part.arguments)
        if delta.reason:
            self._faults = delta.faults or ()
            if not self._open:  # an empty answer is an empty message
                yield from self._begin_message()
            self._reason = delta.reason
            yield from self._close()

    def end(self) -> Iterator[dict[str, Any]]:
        yield self._event(f"response.{self._status}", response=self._response(self._status))

    def _begin_message(self) -> Iterator[dict[str, Any]]:
        yield from self._close_reasoning()
        self._open = "message"
        yield self._item_event("added", self._message(is_done=False))
        yield self._event("response.content_part.added", **self._place(), part=_text_part(""))

    def _close_reasoning(self) -> Iterator[dict[str, Any]]:
        if self._reasoning and not self._items:
            content = [{"type": "reasoning_text", "text": self._reasoning}]
            item = {"type": "reasoning", "id": f"rs_{self._reply.id}", "summary": [], "content": content}
            yield self._item_event("added", {**item, "content": []})
            yield from self._done(item)

    def _close(self) -> Iterator[dict[str, Any]]:
        # End the current item.
        if self._open == "message":
            self._take_logprobs()
            done = {"text": self._text, "logprobs": self._logprobs}
            yield self._event("response.output_text.done", **self._place(), **done)
            part = _text_part(self._text, self._logprobs)
            yield self._event("response.content_part.done", **self._place(), part=part)
            yield from self._done(self._message(is_done=True))
        elif self._open == "call":
            done = {"name": self._call.name, "arguments": self._arguments}
            yield self._event("response.function_call_arguments.done", **self._place(), **done)
            yield from self._done(self._call_item(is_done=True))
        self._open = ""

    def _take_logprobs(self) -> list[dict[str, Any]]:
        taken, self._held = self._held, []
        self._logprobs += taken
        return taken

    def _message(self, *, is_done: bool) -> dict[str, Any]:
        return {
            "type": "message",
            "id": f"msg_{self._reply.id}",
            "role": "assistant",
            "status": self._status if is_done else "in_progress",
            "content": [_text_part(self._text, self._logprobs)] if is_done else [],
        }

    def _call_item(self, *, is_done: bool) -> dict[str, Any]:
        return {
            "type": "function_call",
            "id": f"fc_{self._reply.id}_{self._call.number}",
            "call_id": self._reply.call_id(0, self._call.number),
            "name": self._call.name,
            "arguments": self._arguments if is_done else "",
            "status": self._status if is_done else "in_progress",
        }

    def _place(self) -> dict[str, Any]:
        index = len(self._items)
        if self._open == "call":
            return {"item_id": f"fc_{self._reply.id}_{self._call.number}", "output_index": index}
        return {"item_id": f"msg_{self._reply.id}", "output_index": index, "content_index": 0}

    def _done(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield self._item_event("done", item)
        self._items.append(item)

    def _item_event(self, change: str, item: dict[str, Any]) -> dict[str, Any]:
        return self._event(f"response.output_item.{change}", output_index=len(self._items), item=item)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}

    def _response(self, status: str) -> dict[str, Any]:
        values = self._reply.call.options.values
        tools = json.loads(values.get("tools", "[]"))
        tool_head = {"type": "function", "parameters": None, "strict": None}
        return {
            "id": f"resp_{self._reply.id}",
            "object": "response",
            "created_at": self._reply.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": None,
            "max_output_tokens": values.get("max_tokens"),
            "metadata": {},
            "model": self._reply.model,
            "output": list(self._items),
            "parallel_tool_calls": not self._reply.call.has_one_call,
            "previous_response_id": None,
            "store": False,
            "temperature": values.get("temperature"),
            "tool_choice": values.get("tool_choice", "auto"),
            "tools": [{**tool_head, **tool.get("function", tool)} for tool in tools],
            "top_p": values.get("top_p"),
            "usage": None if status == "in_progress" else _usage(self._answers.usage),
            **self._reply.dropped,
            **({"faults": list(self._faults)} if self._faults else {}),
        }

    @property
    def _status(self) -> str:
        # Of the answer and of its last item.
        return "incomplete" if self._reason == "length" else "completed"


def _text_part(text: str, logprobs: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": [*logprobs]}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.num_cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }


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

"""Replies of /v1/responses: the whole object, and the events of its stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from gencli.core.events import Event
from gencli.server.wire.answers import Answers, Usage
from gencli.server.wire.errors import ApiError
from gencli.server.wire.logprobs import token_entries
from gencli.server.wire.replies import Reply, sse
from gencli.structured.tool_calls import CallPart

__all__ = ["ResponseStream", "ResponseWhole"]


class _Output:
    """The output items of an answer: reasoning, a message, calls, in this order."""

    def __init__(self, reply: Reply) -> None:
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
            "status": self._status(is_done=is_done),
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
            "status": self._status(is_done=is_done),
        }

    def _status(self, *, is_done: bool) -> str:
        """Return the status of an item; the last item of an answer may be incomplete."""
        if not is_done:
            return "in_progress"
        return "incomplete" if self.reason == "length" else "completed"

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
            "tools": [_flat(tool) for tool in json.loads(values.get("tools", "[]"))],
            "top_p": values.get("top_p"),
            "usage": _usage(usage) if usage else None,
            **self.reply.dropped,
            **({"faults": list(self.faults)} if self.faults else {}),
        }

    def status(self) -> str:
        return "incomplete" if self.reason == "length" else "completed"


def _flat(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "parameters": None, "strict": None, **tool.get("function", tool)}


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

    def __init__(self, reply: Reply, answers: Answers) -> None:
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
        if (found := self._answers.delta(event)) is None:
            return
        delta, output = found[1], self._output
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
            name, place = self._call.name, self._call_place()
            kind = "response.function_call_arguments.done"
            yield self._event(kind, **place, name=name, arguments=output.arguments)
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

    def __init__(self, reply: Reply, answers: Answers) -> None:
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

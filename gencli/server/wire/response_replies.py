"""Replies of /v1/responses: the whole object, and the events of its stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gencli.core.events import Event
from gencli.server.wire.answers import Answers, Delta, ToolCall, Usage
from gencli.server.wire.errors import ApiError
from gencli.server.wire.replies import Reply

__all__ = ["ResponseStream", "ResponseWhole"]


class _Output:
    """The items of an answer: reasoning, a message, calls, in this order."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.reasoning = self.text = ""
        self.items: list[dict[str, Any]] = []
        self.reason = ""

    def message(self, *, is_done: bool) -> dict[str, Any]:
        part = [self.part(self.text)] if is_done else []
        status = "completed" if is_done and self.reason != "length" else "incomplete"
        return {
            "type": "message",
            "id": f"msg_{self.reply.id}",
            "role": "assistant",
            "status": status if is_done else "in_progress",
            "content": part,
        }

    @staticmethod
    def part(text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def thoughts(self) -> dict[str, Any]:
        content = [{"type": "reasoning_text", "text": self.reasoning}]
        return {"type": "reasoning", "id": f"rs_{self.reply.id}", "summary": [], "content": content}

    def call(self, number: int, call: ToolCall, *, is_done: bool) -> dict[str, Any]:
        return {
            "type": "function_call",
            "id": f"fc_{self.reply.id}{number}",
            "call_id": f"call_{self.reply.id}{number}",
            "name": call.name,
            "arguments": call.arguments if is_done else "",
            "status": "completed" if is_done else "in_progress",
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
            "tools": [_flat(tool) for tool in json.loads(values.get("tools", "[]"))],
            "top_p": values.get("top_p"),
            "usage": _usage(usage) if usage else None,
        }

    def status(self) -> str:
        return "incomplete" if self.reason == "length" else "completed"


def _flat(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "parameters": None, "strict": None, **tool.get("function", tool)}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": sum(usage.cached.values()), "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }


class ResponseStream:
    """Turns the events of a call into the events of a stream; each is numbered from 0."""

    done = b""

    def __init__(self, reply: Reply, answers: Answers) -> None:
        self._answers, self._output = answers, _Output(reply)
        self._number = 0
        self._has_message = False

    def frame(self, chunk: Mapping[str, Any]) -> bytes:
        """Return the bytes of an event."""
        text = json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))
        return f"event: {chunk['type']}\ndata: {text}\n\n".encode()

    def error(self, error: ApiError) -> bytes:
        """Return the bytes of an error in the stream."""
        about = {"code": error.code, "message": error.message, "param": error.param}
        return self.frame(self._event("error", **about))

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the events before any text."""
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._output.response("in_progress"))

    def add(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the events of an event of the engine. Raises ApiError for a text that has failed."""
        if (found := self._answers.delta(event)) is None:
            return
        delta, output = found[1], self._output
        output.reasoning += delta.reasoning
        if delta.content:
            yield from self._add_text(delta.content)
        if delta.reason:
            output.reason = delta.reason
            yield from self._close(delta)

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the last event."""
        status = self._output.status()
        yield self._event(f"response.{status}", response=self._output.response(status, self._answers.usage))

    def _add_text(self, text: str) -> Iterator[dict[str, Any]]:
        output = self._output
        if not self._has_message:
            yield from self._open()
        output.text += text
        yield self._event("response.output_text.delta", **self._place(), delta=text, logprobs=[])

    def _open(self) -> Iterator[dict[str, Any]]:
        """Begin the message, after the reasoning if there is any."""
        self._has_message = True
        yield from self._close_reasoning()
        message = self._output.message(is_done=False)
        index = len(self._output.items)
        yield self._event("response.output_item.added", output_index=index, item=message)
        yield self._event("response.content_part.added", **self._place(), part=self._output.part(""))

    def _close_reasoning(self) -> Iterator[dict[str, Any]]:
        output = self._output
        if output.reasoning:
            yield from self._item(output.thoughts(), {**output.thoughts(), "content": []})

    def _close(self, delta: Delta) -> Iterator[dict[str, Any]]:
        output = self._output
        if not self._has_message and not delta.calls:
            yield from self._open()  # an empty answer is a message, too
        if self._has_message:
            place, part = self._place(), output.part(output.text)
            yield self._event("response.output_text.done", **place, text=output.text, logprobs=[])
            yield self._event("response.content_part.done", **place, part=part)
            message = output.message(is_done=True)
            yield self._event("response.output_item.done", output_index=len(output.items), item=message)
            output.items.append(message)
        else:
            yield from self._close_reasoning()
        for number, call in enumerate(delta.calls):
            yield from self._call(number, call)

    def _call(self, number: int, call: ToolCall) -> Iterator[dict[str, Any]]:
        output = self._output
        item, index = output.call(number, call, is_done=True), len(output.items)
        place = {"item_id": item["id"], "output_index": index}
        begun = output.call(number, call, is_done=False)
        yield self._event("response.output_item.added", output_index=index, item=begun)
        kind = "response.function_call_arguments"
        yield self._event(f"{kind}.delta", **place, delta=call.arguments)
        yield self._event(f"{kind}.done", **place, name=call.name, arguments=call.arguments)
        yield self._event("response.output_item.done", output_index=index, item=item)
        output.items.append(item)

    def _item(self, item: dict[str, Any], begun: dict[str, Any]) -> Iterator[dict[str, Any]]:
        index = len(self._output.items)
        yield self._event("response.output_item.added", output_index=index, item=begun)
        yield self._event("response.output_item.done", output_index=index, item=item)
        self._output.items.append(item)

    def _place(self) -> dict[str, Any]:
        index = len(self._output.items)
        return {"item_id": f"msg_{self._output.reply.id}", "output_index": index, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}


class ResponseWhole:
    """Collects the events of a call into one response: that of the last event of the stream."""

    def __init__(self, reply: Reply, answers: Answers) -> None:
        self._stream = ResponseStream(reply, answers)

    def add(self, event: Event) -> None:
        """Add an event. Raises ApiError for a text that has failed."""
        for _ in self._stream.add(event):
            pass

    def body(self) -> dict[str, Any]:
        """Return the response, when the text has ended."""
        (last,) = self._stream.end()
        response: dict[str, Any] = last["response"]
        return response

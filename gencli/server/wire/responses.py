"""/v1/responses as a translation: the body to a chat completion's, the reply from the same deltas.

Nothing is stored: a conversation is sent completely each time. Source: OpenAI's reference of responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.server.wire.errors import ApiError, bad_field
from gencli.server.wire.fields import given_fields

__all__ = ["chat_body"]

_ROLES = ("user", "assistant", "system", "developer")
_RENAMED = {"max_output_tokens": "max_tokens"}
# Fields that do not change a text here: a limit is for calls of tools that a server runs by itself, and an
# input that is too long is refused.
_WITHOUT_EFFECT = ("stream_options", "max_tool_calls")
_LOGPROBS = "message.output_text.logprobs"  # the only supported value of `include`
_STORED = "nothing is stored, so send the whole input"
# Values with which a field has no effect, and why another one is refused.
_ONLY: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "background": ((False,), "a response is sent when it is complete, or as a stream"),
    "truncation": (("disabled", "auto"), "it has to be auto or disabled"),
    "previous_response_id": ((), _STORED),
    "conversation": ((), _STORED),
    "previous_response": ((), _STORED),
    "prompt": ((), "no prompts are stored, so send its text as input or instructions"),
}
_SINGLE = ("n", "n_cmpl", "num_return_sequences")
_NOT_SHOWN = ("return_token_ids", "prompt_logprobs", "trace")  # fields without a place in the reply


def chat_body(body: Any) -> dict[str, Any]:
    """Return the equivalent body of a chat completion. Raises ApiError for features without an equivalent."""
    rest = given_fields(body)
    if "input" not in rest:
        raise ApiError(400, "The body needs input.", param="input", code="missing_field")
    for name, (values, why) in _ONLY.items():
        if name in rest and rest.pop(name) not in values:
            raise bad_field(name, f"{name} is not supported: {why}.", code="unsupported_value")
    for name in _SINGLE:
        if rest.pop(name, 1) != 1:
            raise bad_field(name, f"{name} has to be 1: a response has one answer.", code="unsupported_value")
    for name in _NOT_SHOWN:
        if rest.pop(name, False) is not False:
            what = f"{name} is not supported for responses. Ask /v1/chat/completions."
            raise bad_field(name, what, code="unsupported_value")
    messages = _messages(rest.pop("input"))
    if "instructions" in rest:
        messages.insert(0, {"role": "system", "content": rest.pop("instructions")})
    made: dict[str, Any] = {"messages": messages}
    for name, value in rest.items():
        if name in _WITHOUT_EFFECT:
            continue
        for key, item in _field(name, value).items():
            if made.setdefault(key, item) != item:
                raise bad_field(name, f"{name} contradicts another field of the body. Leave one of them out.")
    return made


def _field(name: str, value: Any) -> dict[str, Any]:
    if name == "text":
        return _text(value)
    if name == "tools":
        return {"tools": _tools(value)}
    if name == "top_logprobs":
        return {"logprobs": True, "top_logprobs": value} if value else {}
    if name == "include":
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise bad_field("include", "include has to be a list of names.")
        return {"logprobs": True} if _LOGPROBS in value else {}
    return {_RENAMED.get(name, name): value}


def _text(value: Any) -> dict[str, Any]:
    """Return `text.format` as chat's response_format, which wraps the schema, and `verbosity`."""
    if not isinstance(value, Mapping):
        raise bad_field("text", "text has to be an object.")
    form, hint = value.get("format"), value.get("verbosity")
    made = {} if hint is None else {"verbosity": hint}
    if not isinstance(form, Mapping) or form.get("type") != "json_schema":
        return made if form is None else {**made, "response_format": form}
    if "schema" not in form:
        raise bad_field("text.format", "text.format has to have a schema, as its type is json_schema.")
    return {**made, "response_format": {"type": "json_schema", "json_schema": {"schema": form["schema"]}}}


def _tools(value: Any) -> Any:
    """Return the tools in chat form; here a tool's name is a sibling of its type."""
    if not isinstance(value, list) or not all(isinstance(tool, Mapping) for tool in value):
        raise bad_field("tools", "tools has to be a list of functions.")
    made = []
    for tool in value:
        if tool.get("type") != "function":
            raise bad_field(
                "tools", f"tools has {str(tool.get('type'))[:60]!r}, but only functions are known."
            )
        inner = {key: item for key, item in tool.items() if key != "type" and item is not None}
        made.append({"type": "function", "function": inner})
    return made


def _messages(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise bad_field("input", "input has to be a text, or a list of items.")
    messages: list[dict[str, Any]] = []
    for number, item in enumerate(value):
        message = _message(item, f"input[{number}]")
        if message is None:
            continue
        # Calls of one turn are separate items here, but one message in chat.
        if "tool_calls" in message and messages and messages[-1]["role"] == "assistant":
            calls = messages[-1].get("tool_calls", [])
            messages[-1]["tool_calls"] = [*calls, *message["tool_calls"]]
        else:
            messages.append(message)
    return messages


def _message(item: Any, place: str) -> dict[str, Any] | None:
    """Return the message of an item; None for reasoning, which is not passed to the model again."""
    kind = item.get("type", "message") if isinstance(item, Mapping) else None
    if kind == "message":
        if item.get("role") not in _ROLES:
            raise bad_field(place, f"{place} has to have a role: {', '.join(_ROLES)}.")
        return {"role": item["role"], "content": item.get("content")}
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
    if kind == "reasoning":
        return None
    raise bad_field(place, f"{place} is an item of a type that is not supported: {str(kind)[:60]!r}.")

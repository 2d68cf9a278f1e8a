"""The messages of a conversation in the form that chat templates expect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.errors import UsageError
from gencli.json_reader import DocumentError, parse_json
from gencli.server.wire.errors import ApiError
from gencli.templates.chat_templates import ROLES, text_content

__all__ = ["read_messages"]

_TAKEN = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning")
# Fields of earlier answers and of caches, which clients send back as they got them.
_WITHOUT_EFFECT = (
    *("id", "refusal", "annotations", "audio", "function_call", "status", "type", "parsed", "cache_control"),
    *("reasoning_details", "provider_specific_fields", "thinking_blocks"),
)


def read_messages(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Return the messages with `content` as text; calls and reasoning of earlier turns are kept.

    The arguments of a call, JSON text in the body, become a value, as templates expect. Raises ApiError with
    the index of the invalid message.
    """
    if not isinstance(value, list) or not value:
        raise _bad("messages", "messages has to be a list of objects with role and content, and not empty.")
    return tuple(_read(message, f"messages[{number}]") for number, message in enumerate(value))


def _read(message: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(message, Mapping):
        raise _bad(place, f"{place} has to be an object with role and content.")
    known = (*_TAKEN, *_WITHOUT_EFFECT)
    unknown = [key for key, value in message.items() if value is not None and key not in known]
    if unknown:
        raise _bad(f"{place}.{unknown[0]}", f"{place} has no field {unknown[0]!r}.", "unknown_field")
    role = message.get("role")
    if role not in ROLES:
        raise _bad(f"{place}.role", f"{place}.role is {role!r}, but has to be one of {', '.join(ROLES)}.")
    made: dict[str, Any] = {"role": role, "content": _content(message, place)}
    if thoughts := message.get("reasoning_content") or message.get("reasoning"):
        made["reasoning_content"] = _text(thoughts, f"{place}.reasoning_content")
    for key in ("name", "tool_call_id"):
        if message.get(key) is not None:
            made[key] = _text(message[key], f"{place}.{key}")
    if message.get("tool_calls"):
        made["tool_calls"] = _calls(message["tool_calls"], f"{place}.tool_calls")
    return made


def _content(message: Mapping[str, Any], place: str) -> str:
    content = message.get("content")
    if content in (None, []) and message["role"] == "assistant":
        return ""
    if isinstance(content, list):
        content = [_plain_part(part) for part in content]
    try:
        return text_content(content, place)
    except UsageError as error:
        raise _bad(f"{place}.content", error.message) from None


def _plain_part(part: Any) -> Any:
    """Return a part of the responses API, or a refusal of an earlier answer, as a text of the chat API."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind not in ("input_text", "output_text", "refusal"):
        return part
    return {"type": "text", "text": part.get("refusal" if kind == "refusal" else "text")}


def _calls(value: Any, place: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise _bad(place, f"{place} has to be a list of calls.")
    return [_call(call, f"{place}[{number}]") for number, call in enumerate(value)]


def _call(call: Any, place: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise _bad(place, f"{place} has to be a call with a function and its name.")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments)
        except DocumentError as error:
            raise _bad(place, f"{place}.function.arguments is no JSON: {error.message}") from None
    function = {"name": function["name"], "arguments": arguments}
    return {"id": str(call.get("id") or ""), "type": "function", "function": function}


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise _bad(place, f"{place} has to be a text.")
    return value


def _bad(place: str, message: str, code: str = "invalid_value") -> ApiError:
    return ApiError(400, message, param=place, code=code)

"""Fields of a body: the errors of the wire format, checked fields, messages and template variables.

Errors have one form on every route, {error: {message, type, param, code}}, with a status and a type known
to clients. Source: the reference of OpenAI's API, and its client's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.errors import GencliError, UsageError
from gencli.json_text import DocumentError, parse_json
from gencli.templates.chat_templates import ROLES, text_content

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
    504: "timeout_error",
}
_MAX_MESSAGE = 1000  # characters of a message
_HEADERS: dict[int, dict[str, str]] = {
    401: {"www-authenticate": "Bearer"},
    429: {"retry-after": "1"},
    500: {"x-should-retry": "false"},  # OpenAI's client would otherwise send the request twice more
    503: {"retry-after": "5"},
}


class ApiError(GencliError):
    """An error with a status; `param` is the invalid field, `code` is for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(f"{_shortened(message)} {hint}".strip(), hint=hint)
        self.status, self.param, self.code = status, param and _shortened(param), code
        self.headers = {**_HEADERS.get(status, {}), **(headers or {})}

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def _shortened(text: str) -> str:
    # Text quoted from a client is cut, so that a reply does not grow with its request.
    half = _MAX_MESSAGE // 2
    return text if len(text) <= _MAX_MESSAGE else f"{text[:half]} ... {text[-half:]}"


def bad_field(field: str, fault: str, *, code: str = "invalid_value") -> ApiError:
    """Return the error for a field with an invalid value; its message is the field and `fault`."""
    return ApiError(400, f"{field} {fault}", param=field, code=code)


def unknown_field(field: str, hint: str = "") -> ApiError:
    """Return the error for a field that is unknown or unsupported by this server."""
    return ApiError(400, f"There is no field {field!r}.", param=field, code="unknown_field", hint=hint)


class FieldReader:
    """Takes fields out of `fields`, the non-null ones of a body. Raises ApiError for a wrong type."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def needed(self, name: str) -> Any:
        if name not in self.fields:
            raise ApiError(400, f"The body needs {name}.", param=name, code="missing_field")
        return self.fields.pop(name)

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.fields.pop(name, default)
        if not isinstance(value, bool):
            raise bad_field(name, "has to be true or false.")
        return value

    def text(self, name: str) -> str:
        value = self.fields.pop(name, "")
        if not isinstance(value, str) or len(value) > 512:
            raise bad_field(name, "has to be a short text.")
        return value

    def count(self, name: str) -> int | None:
        """Return an integer field >= 0; None if it is missing or false."""
        value = self.fields.pop(name, None)
        if value is None or value is False:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise bad_field(name, "has to be a whole number from 0.")
        return value

    def whole(self, name: str, smallest: int, largest: int) -> int | None:
        """Return an integer field within bounds; None if it is missing."""
        value: int | None = self.fields.pop(name, None)
        if value is not None and (not is_id(value) or not smallest <= value <= largest):
            raise bad_field(name, f"has to be a whole number, {smallest} to {largest}.")
        return value


def is_id(value: Any) -> bool:
    """Whether the value is an integer, and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


_MESSAGE_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning")
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
        raise bad_field("messages", "has to be a list of objects with role and content, and not empty.")
    return tuple(_read(message, f"messages[{number}]") for number, message in enumerate(value))


def without_unknown(value: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the messages without their unknown fields, and the names of those."""
    if not isinstance(value, list):
        return value, ()
    unknown = [_unknown(message) if isinstance(message, Mapping) else [] for message in value]
    kept = [
        {key: item for key, item in message.items() if key not in keys} if keys else message
        for message, keys in zip(value, unknown, strict=True)
    ]
    return kept, tuple(f"messages[{number}].{key}" for number, keys in enumerate(unknown) for key in keys)


def _unknown(message: Mapping[str, Any]) -> list[str]:
    names = (*_MESSAGE_FIELDS, *_WITHOUT_EFFECT)
    return [key for key, value in message.items() if value is not None and key not in names]


def _read(message: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(message, Mapping):
        raise bad_field(path, "has to be an object with role and content.")
    if unknown := _unknown(message):
        fault = f"{path} has no field {unknown[0]!r}."
        raise ApiError(400, fault, param=f"{path}.{unknown[0]}", code="unknown_field")
    role = message.get("role")
    if role not in ROLES:
        raise bad_field(f"{path}.role", f"is {role!r}, but has to be one of {', '.join(ROLES)}.")
    read: dict[str, Any] = {"role": role, "content": _content(message, path)}
    if thoughts := message.get("reasoning_content") or message.get("reasoning"):
        read["reasoning_content"] = _text(thoughts, f"{path}.reasoning_content")
    for key in ("name", "tool_call_id"):
        if message.get(key) is not None:
            read[key] = _text(message[key], f"{path}.{key}")
    if message.get("tool_calls"):
        path = f"{path}.tool_calls"
        if not isinstance(message["tool_calls"], list):
            raise bad_field(path, "has to be a list of calls.")
        calls = enumerate(message["tool_calls"])
        read["tool_calls"] = [_call(call, f"{path}[{number}]") for number, call in calls]
    return read


def _content(message: Mapping[str, Any], path: str) -> str:
    content = message.get("content")
    if content in (None, []) and message["role"] == "assistant":
        return ""
    if isinstance(content, list):
        content = [*map(_plain_part, content)]
    try:
        return text_content(content, path)
    except UsageError as error:
        raise ApiError(400, error.message, param=f"{path}.content", code="invalid_value") from None


def _plain_part(part: Any) -> Any:
    # A part of the responses API, or a refusal of an earlier answer, is a text of the chat API.
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind not in ("input_text", "output_text", "refusal"):
        return part
    return {"type": "text", "text": part.get("refusal" if kind == "refusal" else "text")}


def _call(call: Any, path: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise bad_field(path, "has to be a call with a function and its name.")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments)
        except DocumentError as error:
            message = f"{path}.function.arguments is not JSON: {error.message}"
            raise ApiError(400, message, param=path, code="invalid_value") from None
    called = {"name": function["name"], "arguments": arguments}
    return {"id": str(call.get("id") or ""), "type": "function", "function": called}


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise bad_field(path, "has to be a text.")
    return value


_RESERVED = (
    "chat_template", "messages", "tools", "documents", "tokenize", "conversation", "add_generation_prompt",
    "continue_final_message",
)  # fmt: skip


def read_variables(body: FieldReader) -> dict[str, Any]:
    """Return the variables of the chat template, never the template itself. Raises ApiError."""
    fields = body.fields
    field = "template_vars" if "template_vars" in fields else "chat_template_kwargs"
    values = fields.pop(field, {})
    if not isinstance(values, Mapping):
        raise bad_field(field, "has to be an object.")
    for name in _RESERVED:
        if name in values:
            message = f"{name} cannot be a variable of the template."
            raise ApiError(400, message, param=f"{field}.{name}", code="invalid_value")
    variables = dict(values)
    _spread_reasoning(fields)
    for name in ("reasoning_effort", "verbosity"):
        if name in fields:
            variables[name] = body.text(name)
    if "enable_thinking" in fields:
        variables["enable_thinking"] = body.flag("enable_thinking")
    if "thinking" in fields:  # templates use one of two names
        thinking = fields.pop("thinking")
        variables["thinking"] = variables["enable_thinking"] = _is_thinking(thinking)
        if isinstance(thinking, Mapping) and "budget_tokens" in thinking:
            fields.setdefault("thinking_token_budget", thinking["budget_tokens"])
    if "documents" in fields:
        documents = fields.pop("documents")
        if not isinstance(documents, list) or not all(isinstance(entry, Mapping) for entry in documents):
            raise bad_field("documents", "has to be a list of objects.")
        variables["documents"] = documents
    return variables


def _spread_reasoning(fields: dict[str, Any]) -> None:
    # The object `reasoning` becomes fields of a chat that say the same; `summary` is a hint: reasoning is
    # shown as it is. Source: OpenAI's responses, OpenRouter, SGLang.
    value = fields.pop("reasoning", {})
    if not isinstance(value, Mapping):
        raise bad_field("reasoning", "has to be an object.")
    names = {"effort": "reasoning_effort", "enabled": "thinking", "max_tokens": "thinking_token_budget"}
    names["exclude"] = "include_reasoning"
    for name, item in value.items():
        if item is None or name in ("summary", "generate_summary", "context", "mode"):
            continue
        if name not in names:
            raise unknown_field(f"reasoning.{name}")
        is_contrary = name == "exclude" and isinstance(item, bool)
        fields.setdefault(names[name], not item if is_contrary else item)


def _is_thinking(value: Any) -> bool:
    kind = value.get("type") if isinstance(value, Mapping) else value
    states = {True: True, False: False, "enabled": True, "disabled": False}
    if not isinstance(kind, bool | str) or kind not in states:
        raise bad_field("thinking", "has to be true, false, or an object of type enabled or disabled.")
    if isinstance(value, Mapping) and not value.keys() <= {"type", "budget_tokens"}:
        raise bad_field("thinking", "has to have a type, and may have budget_tokens.")
    return states[kind]

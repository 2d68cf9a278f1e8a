"""The fields of a body as options: OpenAI's fields and those of other servers, under names of gencli."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gencli.config.jobs import REQUEST_KEYS
from gencli.config.peers import meant_option
from gencli.errors import GencliError
from gencli.server.wire.errors import ApiError, bad_field, unknown_field
from gencli.server.wire.hints import INSTEAD, asks_for_nothing, is_hint, is_known
from gencli.server.wire.vendors import RENAMED, SPECIAL
from gencli.structured.schema_inputs import is_schema_name, named_file, parse_concise
from processors.registry import Registry, builtin_registry

__all__ = [
    "BODY_KEYS",
    "CALL_FIELDS",
    "Options",
    "drop_idle",
    "given_fields",
    "inline",
    "read_field",
    "read_options",
]

# The route decides whether there is a chat template; the other sections are about the output of a run.
# Log-probabilities have their own fields on each route. Clients cannot turn the server's watermark off.
_MARK = frozenset(("watermark", "watermark_key"))
BODY_KEYS = REQUEST_KEYS - {"chat", "raw", "pydantic", "logprobs", "prompt_logprobs"} - _MARK | {"trace"}
_LARGEST = 1 << 16  # characters of a schema in the concise notation
# Fields besides the options: about input and reply.
CALL_FIELDS = (
    "prompt messages suffix preset chat_draw model session cache_salt priority stream stream_options echo "
    "logprobs top_logprobs logprobs_mode return_banned_by prompt_logprobs return_token_ids "
    "return_tokens_as_token_ids parallel_tool_calls add_special_tokens add_generation_prompt "
    "continue_final_message chat_template_kwargs reasoning_effort reasoning include_reasoning thinking "
    "documents response_format"
).split()
_JSON = ("json_schema", "tools", "structural_tag")  # options whose text is a JSON document


@dataclass(frozen=True, slots=True)
class Options:
    """Options by key, the field that gave each, and the fields that were dropped (lenient)."""

    values: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()


def given_fields(body: Any) -> dict[str, Any]:
    """Return the fields of a body without those that are null. Raises ApiError if it is not a JSON object."""
    if not isinstance(body, Mapping):
        raise ApiError(400, "The body has to be a JSON object.", code="invalid_json")
    return {key: value for key, value in body.items() if value is not None}


def read_options(
    body: Mapping[str, Any], *, registry: Registry | None = None, is_lenient: bool = False
) -> Options:
    """Return the options set by the fields of a body; a null field counts as not given.

    Raises ApiError for a field that is unknown, names a file, or contradicts another. With `is_lenient` an
    unknown field is dropped instead.
    """
    options, dropped = Options(), []
    for name, value in body.items():
        if value is None or is_hint(name):
            continue
        try:
            found = read_field(name, value, registry)
        except ApiError as error:
            if not is_lenient or error.code != "unknown_field":
                raise
            dropped.append(name)
            continue
        for key, item in found.items():
            _set(options, name, key, item)
    drop_idle(options.values)
    return Options(options.values, options.fields, tuple(dropped))


def read_field(name: str, value: Any, registry: Registry | None = None) -> dict[str, Any]:
    """Return the options set by a field. Raises ApiError for an unknown field."""
    if name in SPECIAL:
        return SPECIAL[name](name, value)
    key = RENAMED.get(name, name)
    if key in BODY_KEYS:
        return {key: value}
    if asks_for_nothing(name, value):
        return {}
    raise _unknown(name, value, registry or builtin_registry())


def _unknown(name: str, value: Any, registry: Registry) -> ApiError:
    if name in registry.names():
        return unknown_field(name, f"It is a stage: write it under stages, as in {{{name!r}: ...}}.")
    if name in _MARK:
        return unknown_field(name, "The watermark is set for the whole server.")
    if name in CALL_FIELDS:
        return unknown_field(name, "It is a field of other routes.")
    instead = f"The nearest field is {INSTEAD[name]}." if name in INSTEAD else ""
    if is_known(name):
        return ApiError(
            400, f"{name} is {_short(value)}, which this server cannot do. Leave it out.",
            param=name, code="unsupported_value", hint=instead,
        )  # fmt: skip
    return unknown_field(
        name, instead or meant_option(name, {key: repr(key) for key in (*BODY_KEYS, *CALL_FIELDS)})
    )


def _set(options: Options, name: str, key: str, value: Any) -> None:
    value = inline(key, value, name)
    before = options.values.get(key)
    if key == "stages" and isinstance(before, dict) and isinstance(value, dict) and not before.keys() & value:
        value = {**before, **value}  # values of other stages
    elif key in options.values and before != value:
        other = options.fields[key]
        raise bad_field(name, f"{name} and {other} set the same option ({key}) to different values.")
    options.values[key], options.fields[key] = value, name


def inline(key: str, value: Any, name: str) -> Any:
    """Return the value of an option as text. Raises ApiError for a file name: bodies may read no files."""
    if key == "json_schema" and not isinstance(value, str | Mapping):  # 123 would be read as a name
        raise bad_field(name, f"{name} has to have an object as its schema.")
    if key in _JSON and not isinstance(value, str):
        value = json.dumps(value)
    if key == "choice" and value == []:
        raise bad_field(name, f"{name} is an empty list: there is nothing to choose.")
    if key == "json_schema" and isinstance(value, str):
        return _schema(value, name)
    if isinstance(value, str) and named_file(key, value) is not None:
        raise _names_file(name)
    return value


def _schema(text: str, name: str) -> str:
    """Return a schema as JSON text; other text might be the name of an existing file."""
    stripped = text.strip()
    if stripped.startswith("{") or stripped in ("true", "false"):
        return text
    if is_schema_name(text):
        raise _names_file(name)
    if len(text) > _LARGEST:
        message = f"{name} has {len(text)} characters, at most {_LARGEST} are allowed."
        raise bad_field(name, message, code="too_large")
    try:
        return json.dumps(parse_concise(text))
    except GencliError as error:
        raise bad_field(name, error.message, code="invalid_structure") from None


def _names_file(name: str) -> ApiError:
    return bad_field(name, f"{name} names a file, which a request cannot read. Send the text itself.")


def drop_idle(values: dict[str, Any]) -> None:
    """Remove options that ask for nothing in this combination. Raises ApiError for a choice without tools.

    With `tool_choice` none, drop the tools, so that the model does not see them either.

    An empty list is no tools, and `auto` without tools is no choice: some clients send them always.
    """
    if values.get("tools") in ([], "[]"):
        del values["tools"]
    choice = values.get("tool_choice")
    if choice == "none" or (choice == "auto" and "tools" not in values):
        del values["tool_choice"]
        values.pop("tools", None)
    elif "tool_choice" in values and "tools" not in values:
        raise bad_field("tool_choice", "tool_choice needs tools. Leave it out, or send tools.")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."

"""The chat template's variables that a body may set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.server.wire.errors import bad_field, unknown_field
from gencli.server.wire.taking import Taking

__all__ = ["read_variables"]

_RESERVED = (
    "chat_template", "messages", "tools", "documents", "tokenize", "conversation", "add_generation_prompt",
    "continue_final_message",
)  # fmt: skip


def read_variables(body: Taking) -> dict[str, Any]:
    """Return the variables of the chat template, never the template itself. Raises ApiError."""
    rest = body.rest
    field = "template_vars" if "template_vars" in rest else "chat_template_kwargs"
    given = rest.pop(field, {})
    if not isinstance(given, Mapping):
        raise bad_field(field, f"{field} has to be an object.")
    for name in _RESERVED:
        if name in given:
            raise bad_field(f"{field}.{name}", f"{name} cannot be a variable of the template.")
    found = dict(given)
    _spread_reasoning(rest)
    if "reasoning_effort" in rest:
        found["reasoning_effort"] = body.text("reasoning_effort")
    if "verbosity" in rest:
        found["verbosity"] = body.text("verbosity")
    if "enable_thinking" in rest:
        found["enable_thinking"] = body.flag("enable_thinking")
    if "thinking" in rest:  # templates use one of two names
        found["thinking"] = found["enable_thinking"] = _is_thinking(given := rest.pop("thinking"))
        if isinstance(given, Mapping) and "budget_tokens" in given:
            rest.setdefault("thinking_token_budget", given["budget_tokens"])
    if "documents" in rest:
        found["documents"] = _documents(rest.pop("documents"))
    return found


def _spread_reasoning(rest: dict[str, Any]) -> None:
    """Replace the object `reasoning` by the fields of a chat that say the same.

    `summary` is a hint: reasoning is shown as it is. Source: OpenAI's responses, OpenRouter, SGLang.
    """
    value = rest.pop("reasoning", {})
    if not isinstance(value, Mapping):
        raise bad_field("reasoning", "reasoning has to be an object.")
    names = {
        "effort": "reasoning_effort",
        "enabled": "thinking",
        "max_tokens": "thinking_token_budget",
        "exclude": "include_reasoning",
    }
    hints = ("summary", "generate_summary", "context", "mode")
    for name, item in value.items():
        if item is None or name in hints:
            continue
        if name not in names:
            raise unknown_field(f"reasoning.{name}")
        if name == "exclude" and isinstance(item, bool):
            item = not item
        rest.setdefault(names[name], item)


def _is_thinking(value: Any) -> bool:
    """Return whether thinking is on, from true, false, or an object of type enabled or disabled."""
    kind = value.get("type") if isinstance(value, Mapping) else value
    found = {True: True, False: False, "enabled": True, "disabled": False}
    if not isinstance(kind, bool | str) or kind not in found:
        raise bad_field(
            "thinking", "thinking has to be true, false, or an object of type enabled or disabled."
        )
    if isinstance(value, Mapping) and not value.keys() <= {"type", "budget_tokens"}:
        raise bad_field("thinking", "thinking has to have a type, and may have budget_tokens.")
    return found[kind]


def _documents(value: Any) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise bad_field("documents", "documents has to be a list of objects.")
    return value

"""The option `schema_in_prompt`: the text that shows a schema, choices or tools to the model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gencli.config.options.structure import IN_PROMPT
from gencli.config.settings import FLAG, Settings
from gencli.errors import UsageError
from gencli.structured.output_spec import DOCUMENTS, OutputSpec
from gencli.templates.chat_templates import NOTHING, Instructions

__all__ = ["CHOICES_TEXT", "SCHEMA_TEXT", "TOOLS_TEXT", "wanted_instructions"]

SCHEMA_TEXT = "Answer in JSON that is valid under this JSON schema:\n{schema}"
CHOICES_TEXT = "Answer with one of these:\n{choices}"
TOOLS_TEXT = "You can call these functions:\n{tools}\nWrite a call in this form:\n{call}"
_KEY = "schema_in_prompt"
_DEFAULTS = {"schema": SCHEMA_TEXT, "choices": CHOICES_TEXT, "tools": TOOLS_TEXT}
_PLACES = re.compile(r"\{(schema|choices|tools|call)\}")


def wanted_instructions(settings: Settings, structure: OutputSpec | None) -> Instructions:
    """Return what prompts tell about the structure of the output.

    Raises UsageError for a text that lacks its placeholder, has another one, or has one twice.
    """
    wanted = settings[_KEY]
    if structure is None or not (values := _values(structure)):
        return _without_effect(settings, structure)
    tools = structure.tools
    if wanted in IN_PROMPT:
        told = {name: _filled(_DEFAULTS[name], values) for name in values.keys() & _DEFAULTS.keys()}
        return Instructions(
            text="".join(told[name] for name in ("schema", "choices") if wanted == "on" and name in told),
            tools=tools,
            tools_text="" if wanted == "off" else told.get("tools", ""),
            is_raw_told=wanted == "on",
        )
    used = _check(wanted, values, settings)
    is_told = "tools" in used or not tools
    return Instructions(
        text=_filled(wanted, values),
        tools=tools,
        tools_text="" if is_told else _filled(TOOLS_TEXT, values),
        is_raw_told=is_told,
    )


def _values(structure: OutputSpec) -> dict[str, str]:
    """Return the text of each placeholder that the structure has."""
    values = {}
    if structure.kind in DOCUMENTS or structure.has_answer:
        values["schema"] = _json(structure.schema)
    if structure.kind == "choice":
        values["choices"] = "\n".join(structure.choices)
    if structure.kind == "tools":
        values["tools"] = "\n".join(_json(_function(tool)) for tool in structure.tools)
        values["call"] = structure.call_form
    return values


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the model has to know of a tool."""
    inner = tool.get("function", tool)
    return {key: inner[key] for key in ("name", "description", "parameters") if inner.get(key) is not None}


def _check(wanted: str, values: Mapping[str, str], settings: Settings) -> list[str]:
    """Return the placeholders of a text."""
    name, used = settings.name(_KEY), _PLACES.findall(wanted)
    needed = [f"{{{key}}}" for key in _DEFAULTS if key in values]
    hint = f"Write {' or '.join(needed)} where the text is to have it; or use auto, on or off."
    for key in used:
        if key not in values:
            raise UsageError(f"{name} has {{{key}}}, but the output has none.", hint=hint)
        if used.count(key) > 1:
            raise UsageError(f"{name} has {{{key}}} twice.", hint="Write it once.")
    if not set(used) & _DEFAULTS.keys():
        shown = wanted if len(wanted) <= 60 else wanted[:57] + "..."
        raise UsageError(f"{name} is {shown!r}, a text without {' or '.join(needed)}.", hint=hint)
    return used


def _without_effect(settings: Settings, structure: OutputSpec | None) -> Instructions:
    """Return no instructions. Raises UsageError if they were asked for beside a structure without them.

    A default, such as that of a server, may go with any structure.
    """
    wanted = settings[_KEY]
    if wanted not in IN_PROMPT and not _PLACES.search(wanted):
        _check(wanted, _DEFAULTS, settings)
    if not settings.is_given(_KEY) or wanted == "auto":
        return NOTHING
    if structure is None:
        is_typed = settings.origin(_KEY) == FLAG
        notice = f"{settings.name(_KEY)} has nothing to show: the output has no structure."
        return Instructions(notice=notice) if is_typed else NOTHING
    if settings.rank(_KEY) >= settings.rank(structure.kind):
        other = settings.name(structure.kind)
        raise UsageError(
            f"{settings.name(_KEY)} shows schemas, choices and tools, but not {other}.",
            hint="Leave one of them out; the prompt itself may say it.",
        )
    return NOTHING


def _json(value: Any) -> str:
    """Return a value as JSON with the spaces that chat templates write."""
    return json.dumps(value, ensure_ascii=False, default=str)  # a Decimal that no float holds is quoted


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACES.sub(lambda match: values.get(match[1], match[0]), text)

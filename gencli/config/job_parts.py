"""Parts of a job from its settings: the specification of the output's structure, the text that shows it to
the model (schema_in_prompt), guidance, searches, and the names of all models of a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gencli.config.result_formats import format_of
from gencli.config.run_options import CONTRASTS, GUIDES, IN_PROMPT, NO_AMATEUR, option
from gencli.config.settings import DEFAULT, FLAG, Settings
from gencli.core.request import BUILT_IN_DRAFTERS, EARLY_EXIT, NO_DRAFTER
from gencli.errors import UsageError
from gencli.helpers import shortened
from gencli.plugins.plugin_registry import PluginRegistry
from gencli.structured.output_spec import DOCUMENTS, KINDS, OutputSpec, PlanRequest, refuse_open
from gencli.structured.planning import plan_output
from gencli.structured.schema_errors import Deadline
from gencli.templates.chat_templates import NOTHING, Instructions
from gencli.templates.prompt_templates import PromptTemplate, read_template
from processors.registry import Registry

_VALUES = (*DOCUMENTS, "tools")
_SCHEMAS = ("json_schema", "pydantic")
# Options that work with some kinds of structure only, and these kinds.
_NEEDS: dict[str, tuple[str, ...]] = {
    "constrain_after": KINDS,
    "grammar_backend": tuple(kind for kind in KINDS if kind != "choice"),
    "grammar_timeout": KINDS,
    "schema_strict": _SCHEMAS,
    "extra_properties": _SCHEMAS,
    "property_order": _SCHEMAS,
    "json_whitespace": DOCUMENTS,
    "formats": _SCHEMAS,
    "partial": KINDS,
    "retries": KINDS,
    "finish_open": KINDS,
    "jump_forward": KINDS,
    "parsed": _VALUES,
    "select": _VALUES,
    "tool_choice": ("tools",),
}


def build_output_spec(settings: Settings) -> OutputSpec | None:
    """Return the output specification of the settings; None for free text.

    Raises UsageError for conflicting options, ConfigError for an invalid schema or grammar.
    """
    kinds = [kind for kind in KINDS if settings[kind]]
    # Tools beside a schema: the output is calls, or a document of the schema.
    answer = kinds.pop(0) if kinds in (["json", "tools"], ["json_schema", "tools"]) else ""
    if kinds[1:]:
        both = f"{settings.name(kinds[0])} and {settings.name(kinds[1])}"
        raise UsageError(f"{both} both define the output.", hint="Leave one of them out.")
    kind = kinds[0] if kinds else ""
    _refuse_idle(settings, kind, answer)
    if not kind:
        return None
    _refuse_pairs(settings, kind)
    asked = PlanRequest(
        backend=settings["grammar_backend"],
        whitespace=settings["json_whitespace"],
        extra=settings["extra_properties"] or "json" in (kind, answer),
        any_order=settings["property_order"] == "any",
        model=settings["model"],
        tool_choice=settings["tool_choice"],
        answer=settings[answer] if answer == "json_schema" else '{"type": "object"}' if answer else None,
        has_formats=settings["formats"],
        pipes=settings.origin(kind) == FLAG,
        deadline=Deadline.after(settings["grammar_timeout"]),
    )
    spec = plan_output(kind, settings[kind], asked, name=settings.name(kind))
    if settings["schema_strict"]:
        refuse_open(spec.plan, name=settings.name("schema_strict"))
        exact = tuple(variant for variant in spec.plan.variants if variant.audit.is_exact)
        spec = replace(spec, plan=replace(spec.plan, variants=exact))
    if option(kind).many:
        source = " | ".join(settings[kind])
    else:
        source = "" if option(kind).type is bool else " ".join(str(settings[kind]).split())
    return replace(
        spec,
        source=shortened(source, 60),
        origin=settings.where(kind),
        after=settings["constrain_after"] or "",
        retries=settings["retries"],
        is_partial=settings["partial"],
        finish_open=settings["finish_open"],
        jump=settings["jump_forward"],
        is_parsed=settings["parsed"],
        select=settings["select"],
    )


def _refuse_idle(settings: Settings, kind: str, answer: str) -> None:
    # Options without effect on this kind of structure, and on the answer beside it.
    name = settings.name
    for key, kinds in _NEEDS.items():
        if not settings.is_given(key) or settings[key] == option(key).default or {kind, answer} & set(kinds):
            continue
        names = [f"`{needed}`" for needed in kinds]
        if not kind:
            needed = ("one of " if names[1:] else "") + ", ".join(names)
            raise UsageError(f"{name(key)} needs {needed}.", hint="Leave it out.")
        hint = f"It is for {', '.join(names)}."
        raise UsageError(f"{name(key)} has no effect for {name(kind)}.", hint=hint)


def _refuse_pairs(settings: Settings, kind: str) -> None:
    name = settings.name
    if settings["constrain_after"] == "":
        raise UsageError(f"{name('constrain_after')} is empty.", hint="Give a text, such as </think>.")
    if settings["stream"]:
        why = f"but with {name(kind)} it is written after the final check."
        message = f"{name('stream')} shows text while it is generated, {why}"
        raise UsageError(message, hint=f"Leave {name('stream')} out.")
    if settings["parsed"] and settings["select"] is not None:
        message = f"{name('parsed')} writes the whole document, {name('select')} a part."
        raise UsageError(message, hint="Leave one out.")
    for key in ("parsed", "select"):
        if settings[key] not in (None, False) and not format_of(settings).is_text:
            message = f"{name(key)} is a form of text, but {name('format')} is {settings['format']}."
            hint = f"A record has the document under parsed; leave {name(key)} out."
            raise UsageError(message, hint=hint)
    if settings["select"] is not None:
        from gencli.structured.schema_errors import check_pointer

        check_pointer(settings["select"])


SCHEMA_TEXT = "Answer in JSON that is valid under this JSON schema:\n{schema}"
CHOICES_TEXT = "Answer with one of these:\n{choices}"
TOOLS_TEXT = "You can call these functions:\n{tools}\nWrite a call in this form:\n{call}"
_KEY = "schema_in_prompt"
_DEFAULTS = {"schema": SCHEMA_TEXT, "choices": CHOICES_TEXT, "tools": TOOLS_TEXT}
_PLACEHOLDER = re.compile(r"\{(schema|choices|tools|call)\}")


def wanted_instructions(settings: Settings, structure: OutputSpec | None) -> Instructions:
    """Return what prompts tell about the structure of the output.

    Raises UsageError for a text that lacks its placeholder, has another one, or has one twice.
    """
    wanted = settings[_KEY]
    if structure is None or not (values := _values(structure)):
        return _without_effect(settings, structure)
    tools = structure.tools
    if wanted in IN_PROMPT:
        texts = {name: _filled(_DEFAULTS[name], values) for name in values.keys() & _DEFAULTS.keys()}
        return Instructions(
            text="".join(texts[name] for name in ("schema", "choices") if wanted == "on" and name in texts),
            tools=tools,
            tools_text="" if wanted == "off" else texts.get("tools", ""),
            is_raw_told=wanted == "on",
        )
    has_tools = "tools" in _check(wanted, values, settings) or not tools
    return Instructions(
        text=_filled(wanted, values),
        tools=tools,
        tools_text="" if has_tools else _filled(TOOLS_TEXT, values),
        is_raw_told=has_tools,
    )


def _values(structure: OutputSpec) -> dict[str, str]:
    values = {}  # the texts of the placeholders that the structure has
    if structure.kind in DOCUMENTS or structure.has_answer:
        values["schema"] = _json(structure.schema)
    if structure.kind == "choice":
        values["choices"] = "\n".join(structure.choices)
    if structure.kind == "tools":
        tools = (tool.get("function", tool) for tool in structure.tools)
        keys = ("name", "description", "parameters")  # what the model has to know of a tool
        shown = ({key: tool[key] for key in keys if tool.get(key) is not None} for tool in tools)
        values["tools"] = "\n".join(map(_json, shown))
        values["call"] = structure.call_form
    return values


def _check(wanted: str, values: Mapping[str, str], settings: Settings) -> list[str]:
    name, used = settings.name(_KEY), _PLACEHOLDER.findall(wanted)
    needed = [f"{{{key}}}" for key in _DEFAULTS if key in values]
    hint = f"Write {' or '.join(needed)} at its place in the text, or use auto, on or off."
    for key in used:
        if key not in values:
            raise UsageError(f"{name} has {{{key}}}, but the output has none.", hint=hint)
        if used.count(key) > 1:
            raise UsageError(f"{name} has {{{key}}} twice.", hint="Write it once.")
    if not set(used) & _DEFAULTS.keys():
        message = f"{name} is {shortened(wanted, 60)!r}, a text without {' or '.join(needed)}."
        raise UsageError(message, hint=hint)
    return used


def _without_effect(settings: Settings, structure: OutputSpec | None) -> Instructions:
    # An error if instructions were asked for beside a structure without them; a default, such as that of a
    # server, may go with any structure.
    wanted, name = settings[_KEY], settings.name
    if wanted not in IN_PROMPT and not _PLACEHOLDER.search(wanted):
        _check(wanted, _DEFAULTS, settings)
    if not settings.is_given(_KEY) or wanted == "auto":
        return NOTHING
    if structure is None:
        notice = f"{name(_KEY)} has nothing to show: the output has no structure."
        return Instructions(notice=notice) if settings.origin(_KEY) == FLAG else NOTHING
    if settings.rank(_KEY) >= settings.rank(structure.kind):
        message = f"{name(_KEY)} shows schemas, choices and tools, but not {name(structure.kind)}."
        raise UsageError(message, hint="Leave one of them out; the prompt itself may describe the output.")
    return NOTHING


def _json(value: Any) -> str:
    # With the spaces that chat templates write; a Decimal that no float holds is quoted.
    return json.dumps(value, ensure_ascii=False, default=str)


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def refuse_guidance(settings: Settings) -> None:
    """Raise UsageError for conflicting options: a text has at most one companion or DoLa."""
    name, leave_out = settings.name, "Leave one of them out."
    if not settings["contrast"]:
        hint = "Leave it out, or give the name of a model."
        raise UsageError(f"{name('contrast')} is empty.", hint=hint)
    is_guided = settings["guidance"] != 1 or settings["negative"] is not None
    if settings["contrast"] != NO_AMATEUR and is_guided:
        guides, contrasts = (
            ", ".join(name(key) for key in keys if settings.is_given(key)) for keys in (GUIDES, CONTRASTS)
        )
        raise UsageError(f"{guides} and {contrasts} cannot be used together.", hint=leave_out)
    beside = [key for key in (*GUIDES, CONTRASTS[0], CONTRASTS[2]) if settings.is_given(key)]
    if settings["dola"] is not None and beside:
        raise UsageError(f"{name('dola')} and {name(beside[0])} cannot be used together.", hint=leave_out)
    if settings["negative"] is not None and settings.origin("guidance") == DEFAULT:
        message = f"{name('negative')} is given, but there is no guidance."
        raise UsageError(message, hint="Add `guidance` = 1.5.")
    strengths = [key for key in CONTRASTS[1:] if settings.is_given(key)]
    if strengths and settings["dola"] is None and settings.origin("contrast") == DEFAULT:
        message = f"{name(strengths[0])} is given, but there is no contrast."
        raise UsageError(message, hint="Add `contrast` = NAME.")


def named_models(settings: Settings, registry: Registry | None) -> dict[str, str]:
    """Return the names by option key: model, draft, contrast."""
    names = {"model": settings["model"]}
    if is_draft_model(settings["draft"], registry):
        names["draft"] = settings["draft"]
    if settings["contrast"] != NO_AMATEUR:
        names["contrast"] = settings["contrast"]
    return names


def is_draft_model(name: str, registry: Registry | None) -> bool:
    """Return whether the value of `draft` is a model, not a drafter of gencli or of a plug-in."""
    if name in (NO_DRAFTER, *BUILT_IN_DRAFTERS) or name.partition(":")[0] == EARLY_EXIT:
        return False
    return not (isinstance(registry, PluginRegistry) and registry.drafter(name) is not None)


def wanted_template(settings: Settings) -> PromptTemplate | None:
    """Return the template of the settings with its variables; None without a template. Raises UsageError."""
    if settings["template"] is None:
        return None
    name, is_typed = settings.name("template"), settings.origin("template") == FLAG
    return read_template(settings["template"], settings["vars"], name=name, pipes=is_typed)

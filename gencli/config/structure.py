"""Builds the specification of a run's outputs from its settings; a run has at most one kind of structure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gencli.config.options.option import Option
from gencli.config.options.run import option
from gencli.config.settings import FLAG, Settings
from gencli.errors import UsageError
from gencli.structured.output_spec import DOCUMENTS, KINDS, OutputSpec, refuse_open
from gencli.structured.planning import PlanRequest, plan_output
from gencli.structured.schema_errors import Deadline

__all__ = ["build_output_spec"]

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
_NUM_SHOWN = 60  # characters of a source in messages


def build_output_spec(settings: Settings) -> OutputSpec | None:
    """Return the output specification of the settings; None for free text.

    Raises UsageError for conflicting options, ConfigError for an invalid schema or grammar.
    """
    kinds = [kind for kind in KINDS if settings[kind]]
    # Tools beside a schema: the output is calls, or a document of the schema.
    answer = kinds.pop(0) if kinds in (["json", "tools"], ["json_schema", "tools"]) else ""
    if kinds[1:]:
        raise UsageError(
            f"{settings.name(kinds[0])} and {settings.name(kinds[1])} both define the output.",
            hint="Leave one of them out.",
        )
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
    return replace(
        spec,
        source=_short(option(kind), settings[kind]),
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
    """Raise UsageError for options without effect on this kind of structure, or on the answer beside it."""
    for key, kinds in _NEEDS.items():
        if not settings.is_given(key) or settings[key] == option(key).default or {kind, answer} & set(kinds):
            continue
        names = [f"`{needed}`" for needed in kinds]
        some = "one of " if names[1:] else ""
        if not kind:
            raise UsageError(f"{settings.name(key)} needs {some}{', '.join(names)}.", hint="Leave it out.")
        raise UsageError(
            f"{settings.name(key)} has no effect for {settings.name(kind)}.",
            hint=f"It goes with {', '.join(names)}.",
        )


def _refuse_pairs(settings: Settings, kind: str) -> None:
    name = settings.name
    if settings["constrain_after"] == "":
        raise UsageError(f"{name('constrain_after')} is empty.", hint="Give a text, such as </think>.")
    if settings["stream"]:
        raise UsageError(
            f"{name('stream')} shows text while it is generated, but with {name(kind)} it is written "
            "after the final check.",
            hint=f"Leave {name('stream')} out.",
        )
    if settings["parsed"] and settings["select"] is not None:
        raise UsageError(
            f"{name('parsed')} writes the whole document, {name('select')} a part.", hint="Leave one out."
        )
    for key in ("parsed", "select"):
        if settings[key] not in (None, False) and settings["format"] != "text":
            raise UsageError(
                f"{name(key)} is a form of text, but {name('format')} is {settings['format']}.",
                hint=f"A record has the document under parsed; leave {name(key)} out.",
            )
    if settings["select"] is not None:
        from gencli.structured.schema_errors import check_pointer

        check_pointer(settings["select"])


def _short(entry: Option, value: Any) -> str:
    """Return the value of an option, shortened to one line."""
    text = "" if entry.type is bool else " | ".join(value) if entry.many else " ".join(str(value).split())
    return text if len(text) <= _NUM_SHOWN else text[: _NUM_SHOWN - 3] + "..."

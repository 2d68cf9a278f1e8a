"""Stages as text: the table of all stages, and the page of one."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Union, get_args, get_origin

from gencli.cli.terminal.tables import table
from gencli.config.options.flags import with_flags
from gencli.config.options.run import OPTIONS
from gencli.plugins.plugin_registry import Listed, sentence
from gencli.watermark_keys import STAGES
from processors.conditions.when import NO_CONDITION
from processors.params import WHEN, WHEN_DOC
from processors.params import describe as describe_fields
from processors.registry import Registry
from processors.secret import Secret

__all__ = ["page", "stage_table"]


def stage_table(stages: Iterable[Listed]) -> str:
    """Return a table with a row for each stage; a broken stage has the phase "broken" and its error."""
    rows = [("phase", "name", "what it does", "source")]
    for stage in stages:
        phase = "broken" if stage.phase is None else stage.phase.name.lower()
        rows.append((phase, stage.name, with_flags(stage.error) or stage.sentence, stage.source))
    return table(rows)


def page(registry: Registry, name: str) -> str:
    """Return a stage's fields, formula, reference and example. Raises UnknownStage."""
    spec = registry.spec(name)
    parts = [
        f"{name} ({spec.phase.name.lower()}, {spec.source})\n{sentence(registry, name)}\n",
        table(_fields(registry, name)),
        table(_facts(registry, name)),
    ]
    return "\n".join(parts)


def _fields(registry: Registry, name: str) -> Iterator[tuple[str, ...]]:
    yield "field", "type", "default", "range", "flag", "meaning"
    flags = {entry.field: entry.flag for entry in OPTIONS if entry.stage == name and not entry.when}
    for field, about in describe_fields(registry.spec(name).params).items():
        yield (
            field,
            _type(about["type"]),
            _default(about["default"]),
            str(about["bounds"]) or "-",
            flags.get(field, "-"),
            about["doc"],
        )
    if name not in NO_CONDITION:
        yield WHEN, "condition", "null", "-", "-", f"{WHEN_DOC} See docs/when.md."


def _facts(registry: Registry, name: str) -> Iterator[tuple[str, str]]:
    note = registry.spec(name).note
    if note is None:
        yield "Example", f"--stage {_example(registry, name)}"
        return
    yield "Formula", note.formula
    yield "Reference", note.reference
    kind = next((kind for kind, (stage, _) in STAGES.items() if stage == name), "")
    marking = f"--watermark {kind} --watermark-key FILE"
    yield "Example", marking if kind else f"--stage {_quoted(note.example)}"
    yield "Elsewhere", note.elsewhere


def _example(registry: Registry, name: str) -> str:
    """Return an example of a plug-in's stage, with values derived from its fields."""
    from processors.chain import Chain
    from processors.errors import ParamError
    from processors.testing import examples

    try:
        return _quoted(str(Chain(((name, examples(registry.spec(name).params)[0]),))))
    except ParamError:
        return f"{name}:KEY=VALUE"


def _quoted(text: str) -> str:
    """Return the text in single quotes if a shell would split or expand it."""
    return f"'{text}'" if set(text) & set('"[]{} ') else text


def _type(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "|".join(arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(argument) for argument in arguments)
    if origin is tuple:
        inner = [_type(argument) for argument in arguments if argument is not Ellipsis]
        return "list of " + inner[0] if len(inner) == 1 else "(" + ", ".join(inner) + ")"
    names = {int: "whole number", float: "number", bool: "true|false", str: "text", type(None): "null"}
    names[Secret] = "secret numbers"
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _default(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

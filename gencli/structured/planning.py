"""From what an option was given to a plan: files are read, schemas and grammars checked."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gencli.errors import ConfigError, UsageError
from gencli.structured.plan import Audit, Plan, Variant
from processors.grammar.constraint import Constraint

__all__ = ["Choosing", "make_plan"]

_MAX_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Choosing:
    """What decides between back ends, and how they are asked.

    `extra` lets objects have properties that the schema does not name; `model` is whose tool calls are
    written.
    """

    backend: str = "auto"
    whitespace: int = 8
    extra: bool = False
    model: str = "tiny"


def make_plan(kind: str, value: Any, choosing: Choosing, *, said: str) -> Plan:
    """The plan of one kind of structure; `said` names the option in errors."""
    if kind in ("json", "json_schema", "pydantic"):
        return _for_schema(_schema(kind, value), choosing)
    return _with_backend(_for_text(kind, value), choosing.backend, said)


def _schema(kind: str, value: Any) -> Any:
    if kind == "json":
        return {"type": "object"}
    return json.loads(_file_or_text(value))


def _for_schema(schema: Any, choosing: Choosing) -> Plan:
    text = json.dumps(schema)
    names = ("xgrammar", "llguidance") if choosing.backend == "auto" else (choosing.backend,)
    variants = tuple(
        Variant(Constraint("json_schema", text, name, choosing.whitespace), Audit(name)) for name in names
    )
    return Plan(variants, "Direct.", schema)


def _for_text(kind: str, value: Any) -> Plan:
    if kind == "choice":
        from gencli.structured.choices import plan_choices

        return plan_choices(value)
    if kind == "regex":
        from gencli.structured.regexes import plan_regex

        return plan_regex(value)
    from gencli.structured.grammars import plan_grammar, plan_lark

    return (plan_grammar if kind == "grammar" else plan_lark)(_file_or_text(value))


def _with_backend(plan: Plan, backend: str, said: str) -> Plan:
    """Only what runs on the back end that was asked for."""
    if backend == "auto":
        return plan
    kept = tuple(variant for variant in plan.variants if variant.constraint.backend == backend)
    if not kept:
        raise UsageError(
            f"{said} does not run on {backend}. {plan.reason}", hint="Leave out --grammar-backend."
        )
    return replace(plan, variants=kept, reason=f"--grammar-backend asks for {backend}.")


def _file_or_text(given: str) -> str:
    """The text of a file with this name; else what was given, if it can be a text."""
    path = Path(given).expanduser()
    if "\n" not in given and len(given) < 4096 and path.is_file():
        return _read(path)
    if not any(mark in given for mark in "\n={\":"):
        raise ConfigError(f"There is no file {given}, and it is no grammar either.")
    return given


def _read(path: Path) -> str:
    try:
        content = path.read_bytes()
        if len(content) > _MAX_BYTES:
            raise ConfigError(f"{path} has {len(content):,} bytes; the limit is {_MAX_BYTES:,}.")
        return content.decode()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text.") from None

"""Formats of records besides tables: JSON, JSON lines and YAML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from gencli.config.options.option import Option
from gencli.json_text import to_json

__all__ = ["FORMAT", "FORMS", "array_parts", "record_text"]

FORMS = Literal["text", "json", "yaml"]
FORMAT = Option(("--format",), FORMS, "Form of the result.", "Output", "text")


def record_text(record: Any, form: str, *, encoding: str = "utf-8") -> str:
    """Return a record as `yaml`, as a line of JSON (`jsonl`), or as indented JSON."""
    if form == "yaml":
        from gencli.yaml_text import to_yaml  # imported only for YAML

        return to_yaml(record, encoding=encoding)
    return to_json(record, encoding=encoding, indent=None if form == "jsonl" else 2) + "\n"


def array_parts(records: Iterable[Any], form: str) -> Iterator[str]:
    """Yield the text of an array in parts, one a record, so that a long array is never stored whole."""
    is_empty = True
    for record in records:
        part = record_text([record], form)
        if form != "yaml":
            part = ("[" if is_empty else ",") + part.removeprefix("[").removesuffix("\n]\n")
        is_empty = False
        yield part
    if is_empty:
        yield "[]\n"
    elif form != "yaml":
        yield "\n]\n"

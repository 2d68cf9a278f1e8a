"""Columns of a table for the properties of documents: their names, and the values that their types hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gencli.batch.outputs.base import ListOf, OutputFormat, StructOf, Type
from gencli.batch.outputs.columns import COLUMNS, IDS, INPUT, SCORES
from gencli.batch.outputs.document_types import property_types
from gencli.errors import UsageError
from gencli.json_text import to_json
from gencli.structured.output_spec import OutputSpec

__all__ = ["DocumentColumns", "document_columns"]

_PREFIX = "output."  # of a property whose name another column has
_KINDS = ("json_schema", "pydantic")
_INT64 = range(-(2**63), 2**63)
_NUM_SHOWN = 60  # characters of a value in messages


class _Misfit(Exception):
    """A value that its column cannot hold; the message says why."""


@dataclass(slots=True)
class DocumentColumns:
    """The columns of a schema's properties. `names` maps each property to its column.

    `misfits`: number of values written so far that their columns could not hold; `first`: where the first
    one is.
    """

    types: Mapping[str, Type]
    names: Mapping[str, str]
    misfits: int = 0
    first: str = ""

    def cells(self, index: int, document: Any) -> Iterator[tuple[str, Any]]:
        """Yield column and value of each property in the document of row `index`; null if it does not fit."""
        if not isinstance(document, Mapping):
            self._note(index, "the document is no object")
            return
        for name, value in document.items():
            if (column := self.names.get(name)) is None:
                continue  # the schema does not name it
            try:
                yield column, _held(self.types[column], value)
            except _Misfit as error:
                self._note(index, f"{column} {error}")

    def _note(self, index: int, what: str) -> None:
        self.misfits += 1
        self.first = self.first or f"first in row {index}: {what}"

    @property
    def notices(self) -> Iterator[str]:
        """Yield a notice about columns that are not what the schema lets expect."""
        said = []
        if texts := [name for name, type_ in self.types.items() if type_ == "json"]:
            said.append(f"no single type by the schema, so JSON text: {', '.join(texts)}")
        if moved := [name for name, column in self.names.items() if name != column]:
            renamed = ", ".join(f"{name} as {self.names[name]}" for name in moved)
            said.append(f"named as other columns are, so written with a prefix: {renamed}")
        if said:
            yield f"`columns`: {'; '.join(said)}."

    def lines(self) -> Iterator[str]:
        """Yield a line about values that their columns could not hold."""
        if self.misfits:
            yield (
                f"{self.misfits:,} values did not fit their columns and are null there, {self.first}. "
                "The column text has them."
            )


def document_columns(spec: OutputSpec | None, form: OutputFormat, *, is_open: bool) -> DocumentColumns:
    """Return the columns of the documents of a run.

    `is_open`: objects may have properties that the schema does not name. Raises UsageError if there is no
    schema with properties, or no table to have columns.
    """
    if not form.is_table:
        raise UsageError(
            f"`columns` are those of a table, but `format` is {form.name}.",
            hint="Write csv, tsv or parquet, or leave it out: a record has the document under parsed.",
        )
    if spec is not None and spec.has_answer:
        raise UsageError(
            f"`columns` need a document in each text, but with `{spec.kind}` a text may be a call, which has "
            "no columns.",
            hint=f"Leave `columns` out (the column text has calls and documents), or `{spec.kind}`.",
        )
    if spec is None or spec.kind not in _KINDS:
        given = f", and `{spec.kind}` has none" if spec else ""
        needed = " or ".join(f"`{kind}`" for kind in _KINDS)
        raise UsageError(f"`columns` are the properties of a schema{given}.", hint=f"Set {needed}.")
    types = property_types(spec.schema, is_open=is_open)
    if not types:
        raise UsageError(f"`columns` needs properties, and the schema of `{spec.kind}` names none.")
    names = _named(types)
    return DocumentColumns({names[name]: type_ for name, type_ in types.items()}, names)


def _named(properties: Iterable[str]) -> dict[str, str]:
    """Return the column of each property. Many readers of tables ignore the case of names."""
    taken = {name.casefold() for name in (*COLUMNS, *SCORES, *IDS, "")}
    names: dict[str, str] = {}
    for name in properties:
        column = name
        while column.casefold() in taken or column.casefold().startswith(INPUT):
            column = _PREFIX + column
        names[name] = column
        taken.add(column.casefold())
    return names


def _held(type_: Type, value: Any) -> Any:
    """Return the value as a column of this type holds it. Raises _Misfit."""
    if value is None:
        return None
    if type_ == "json":
        return to_json(value)
    if isinstance(type_, ListOf):
        if isinstance(value, list):
            return [_held(type_.item, item) for item in value]
        raise _wrong(value, "a list")
    if isinstance(type_, StructOf):
        if isinstance(value, Mapping):
            return _struct(dict(type_.fields), value)
        raise _wrong(value, "an object")
    if type_ == "text":
        if isinstance(value, str):
            return value
        raise _wrong(value, "a text")
    if type_ == "boolean":
        if isinstance(value, bool):
            return value
        raise _wrong(value, "true or false")
    return _number(value, is_whole=type_ == "integer")


def _struct(fields: Mapping[str, Type], value: Mapping[str, Any]) -> dict[str, Any]:
    if more := [name for name in value if name not in fields]:
        raise _Misfit(f"has the field {more[0]!r}, which the schema does not name")
    return {name: _held(type_, value.get(name)) for name, type_ in fields.items()}


def _number(value: Any, *, is_whole: bool) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _wrong(value, "a number")
    try:
        number = int(value) if is_whole else float(value)
    except OverflowError:
        raise _wrong(value, "a number of 64 bits") from None
    if is_whole and (number != value or number not in _INT64):
        raise _wrong(value, "a whole number of 64 bits")
    return number


def _wrong(value: Any, what: str) -> _Misfit:
    text = to_json(value)
    return _Misfit(f"is {text if len(text) <= _NUM_SHOWN else text[:_NUM_SHOWN] + '...'}, but holds {what}")

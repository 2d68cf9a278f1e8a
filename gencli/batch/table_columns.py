"""Results as rows of a table: the interface of output formats, the columns of samples, and typed columns
for the properties of documents. A type is read from the schema alone, so that it does not depend on the
documents that are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias

from gencli.batch.batch_records import Outcome, samples_of
from gencli.batch.batch_rows import INT64, Kind
from gencli.errors import UsageError
from gencli.json_text import to_json
from gencli.structured.json_schema import References, declared_types, pointers_in, with_published
from gencli.structured.output_spec import OutputSpec
from gencli.structured.schema_errors import SchemaError, child


@dataclass(frozen=True, slots=True)
class ListOf:
    """The type of lists whose items have one type."""

    item: Type


@dataclass(frozen=True, slots=True)
class StructOf:
    """The type of objects with these fields, each with its type."""

    fields: tuple[tuple[str, Type], ...]


Type: TypeAlias = "Kind | Literal['json'] | ListOf | StructOf"  # json: a value of any type, as JSON text


class TextTarget(Protocol):
    """Interface of a file or stream that takes text."""

    def write(self, text: str, /) -> object:
        """Write text to the file. Raises OSError, for example for a full disk."""


@dataclass(frozen=True, slots=True)
class RowWriter:
    """`write` writes one outcome, in output order: as a record, or as a row for each sample."""

    write: Callable[[Outcome], object]


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table with their types; `flat` makes the rows of an outcome for these columns."""

    columns: Mapping[str, Type]
    flat: Callable[[Outcome, Mapping[str, Type]], Iterator[dict[str, Any]]]

    def rows(self, outcome: Outcome) -> Iterator[dict[str, Any]]:
        """Yield the rows of an outcome: the value of each column, by name."""
        return self.flat(outcome, self.columns)


OpenLines = Callable[[TextTarget, Table], AbstractContextManager[RowWriter]]
OpenFile = Callable[[BinaryIO, Table], AbstractContextManager[RowWriter]]
OpenFolder = Callable[[Path], AbstractContextManager[RowWriter]]


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """An output format, and the file suffixes that select it.

    One of three functions opens its writer. `lines` writes text, also to stdout and compressed files; `file`
    writes bytes to a file; `folder` writes files into a folder. `lines` and `file` take the columns of a
    table, which `is_table` writes. `has_fields`: each field of a result is written, such as token ids.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    lines: OpenLines | None = None
    file: OpenFile | None = None
    folder: OpenFolder | None = None
    needs_pyarrow: bool = False
    is_table: bool = False
    has_fields: bool = True


COLUMNS: Mapping[str, Kind] = {
    "index": "integer",
    "id": "text",
    "sample": "integer",  # counted from 1
    "prompt": "text",
    "text": "text",
    "finish_reason": "text",
    "matched": "text",
    "prompt_tokens": "integer",
    "completion_tokens": "integer",
    "seed": "text",  # up to 2**64 - 1, too large for signed integers
    "error_type": "text",
    "error_message": "text",
}
SCORES = ("logprobs", "prompt_logprobs")  # columns, as JSON, of tables whose rows request them
IDS = ("token_ids", "prompt_token_ids")  # columns, as JSON, of tables with `token_ids`
INPUT = "input."  # before the name of a kept column
_OF_PROMPT = ("prompt", "prompt_tokens", "seed", "prompt_logprobs", "prompt_token_ids")


def generated(
    kept: Mapping[str, Kind] | None = None,
    *,
    documents: DocumentColumns | None = None,
    asked: Iterable[str] = (),
) -> Table:
    """Return the table of generated texts: its columns, of documents, and of kept input as `input.NAME`.

    `asked`: further columns of the result, such as those of SCORES and IDS.
    """
    columns: dict[str, Type] = {**COLUMNS, **(documents.types if documents else {})}
    columns |= {INPUT + name: kind for name, kind in (kept or {}).items()}
    columns |= dict.fromkeys(asked, "text")
    return Table(columns, partial(_flat, documents=documents))


def _flat(
    outcome: Outcome, columns: Mapping[str, Type], documents: DocumentColumns | None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a result; values other than text become JSON in text columns."""
    result = outcome.result
    kept = {INPUT + name: value for name, value in (result.get("input") or {}).items()}
    for number, sample in enumerate(samples_of(result), start=1):
        error = sample["error"] or {}
        values = {
            **{name: result.get(name) for name in _OF_PROMPT},
            **{name: value for name, value in sample.items() if name in (*COLUMNS, "logprobs", "token_ids")},
            "index": outcome.index,
            "id": outcome.id,
            "sample": number,
            "error_type": error.get("type"),
            "error_message": error.get("message"),
            **kept,
            **dict(documents.cells(outcome.index, sample["parsed"]) if documents and not error else ()),
        }
        yield {name: as_cell(kind, values.get(name)) for name, kind in columns.items()}


def as_cell(kind: Type, value: Any) -> Any:
    """Return the value for a column of this kind; other values become JSON in text columns."""
    if value is None or kind != "text":
        return value
    return str(value) if isinstance(value, str) else to_json(value)


_PREFIX = "output."  # of a property whose name another column has
_KINDS = ("json_schema", "pydantic")
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

    def _note(self, index: int, misfit: str) -> None:
        self.misfits += 1
        self.first = self.first or f"first in row {index}: {misfit}"

    @property
    def notices(self) -> Iterator[str]:
        """Yield a notice about columns that are not what the schema lets expect."""
        parts = []
        if texts := [name for name, type_ in self.types.items() if type_ == "json"]:
            parts.append(f"no single type in the schema, so written as JSON text: {', '.join(texts)}")
        if moved := [name for name, column in self.names.items() if name != column]:
            renamed = ", ".join(f"{name} as {self.names[name]}" for name in moved)
            parts.append(f"the name of another column, so written with a prefix: {renamed}")
        if parts:
            yield f"`columns`: {'; '.join(parts)}."

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
        kind = f", and `{spec.kind}` has none" if spec else ""
        needed = " or ".join(f"`{kind}`" for kind in _KINDS)
        raise UsageError(f"`columns` are the properties of a schema{kind}.", hint=f"Set {needed}.")
    types = property_types(spec.schema, is_open=is_open)
    if not types:
        raise UsageError(f"`columns` needs properties, and the schema of `{spec.kind}` names none.")
    taken = {name.casefold() for name in (*COLUMNS, *SCORES, *IDS, "")}
    names: dict[str, str] = {}
    for name in types:
        column = name
        while column.casefold() in taken or column.casefold().startswith(INPUT):
            column = _PREFIX + column  # many readers of tables ignore the case of names
        names[name] = column
        taken.add(column.casefold())
    return DocumentColumns({names[name]: type_ for name, type_ in types.items()}, names)


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
        if not isinstance(value, Mapping):
            raise _wrong(value, "an object")
        fields = dict(type_.fields)
        if more := [name for name in value if name not in fields]:
            raise _Misfit(f"has the field {more[0]!r}, which the schema does not name")
        return {name: _held(field, value.get(name)) for name, field in fields.items()}
    if type_ in ("text", "boolean"):
        if isinstance(value, str if type_ == "text" else bool):
            return value
        raise _wrong(value, "a text" if type_ == "text" else "true or false")
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _wrong(value, "a number")
    is_whole = type_ == "integer"
    try:
        number = int(value) if is_whole else float(value)
    except OverflowError:
        raise _wrong(value, "a number of 64 bits") from None
    if is_whole and (number != value or number not in INT64):
        raise _wrong(value, "a whole number of 64 bits")
    return number


def _wrong(value: Any, kind: str) -> _Misfit:
    text = to_json(value)
    return _Misfit(f"is {text if len(text) <= _NUM_SHOWN else text[:_NUM_SHOWN] + '...'}, but holds {kind}")


_MAX_COLUMNS = 1000
_MAX_DEPTH = 32  # subschemas above one; a schema that contains itself is deeper
_MAX_PARTS = 1000  # subschemas of a property
_MAX_WORK = 100_000  # subschemas of all properties

_Types = frozenset[Type] | None  # the types of a value that is not null; None: any
_JSON: frozenset[Type] = frozenset({"json"})
_NAMES: dict[str, Type] = {"boolean": "boolean", "integer": "integer", "number": "number", "string": "text"}
_CONDITIONS = ("if", "dependentSchemas", "dependencies")  # may add properties to an object


def property_types(schema: Any, *, is_open: bool) -> dict[str, Type]:
    """Return the type of each property of a schema's documents, in the order of the schema; {} without any.

    `is_open`: objects may have properties that their schema does not name. Raises UsageError for a schema
    with more properties than a table takes columns.
    """
    reader = _TypeReader(with_published(schema), is_open=is_open)
    return {name: _column_type(types) for name, types in reader.properties("", 0).items()}


class _TypeReader:
    """Reads types from the subschemas of one schema, which are named by their JSON pointers."""

    def __init__(self, schema: Any, *, is_open: bool) -> None:
        self._references, self._is_open = References(schema), is_open
        self._work, self._parts = _MAX_WORK, 0

    def properties(self, pointer: str, depth: int) -> dict[str, _Types]:
        """Return the types of the properties of the objects of a schema, also of those that it refers to."""
        schema = self._references.at(pointer)
        self._work -= 1
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return {}
        types_of: dict[str, _Types] = {}
        for name in schema.get("properties", {}):
            self._parts = _MAX_PARTS
            types_of[name] = self._types(child(pointer, "properties", name), 0)
        if len(types_of) > _MAX_COLUMNS or self._work < 0:
            raise UsageError(
                f"`columns`: a table has at most {_MAX_COLUMNS} columns of a schema, and this one has more.",
                hint="Leave `columns` out; the documents are in the column text.",
            )
        for target in self._references.conjuncts(pointer, schema):
            for name, types in self.properties(target, depth + 1).items():
                types_of[name] = _both(types_of.get(name), types)
        for keyword in ("anyOf", "oneOf"):
            branches = [self.properties(each, depth + 1) for each in pointers_in(pointer, schema, keyword)]
            for name in dict.fromkeys(name for branch in branches for name in branch):
                either = _either(branch[name] for branch in branches if name in branch)
                types_of[name] = _both(types_of.get(name), either)
        return types_of

    def _types(self, pointer: str, depth: int) -> _Types:
        schema = self._references.at(pointer)
        self._parts -= 1
        self._work -= 1
        if depth > _MAX_DEPTH or min(self._parts, self._work) < 0:
            return _JSON
        if not isinstance(schema, Mapping):
            return None if schema else frozenset()
        types = self._declared(pointer, schema, depth)
        try:
            for target in self._references.conjuncts(pointer, schema):
                types = _both(types, self._types(target, depth + 1))
        except SchemaError:  # it leads out of the schema
            return _JSON
        for keyword in ("anyOf", "oneOf"):
            if branches := pointers_in(pointer, schema, keyword):
                types = _both(types, _either(self._types(branch, depth + 1) for branch in branches))
        return types

    def _declared(self, pointer: str, schema: Mapping[str, Any], depth: int) -> _Types:
        """Return the types by `type`, `enum` and `const`."""
        types: _Types = None
        if "type" in schema:
            types = frozenset(
                self._array(pointer, schema, depth)
                if name == "array"
                else self._object(pointer, schema, depth)
                if name == "object"
                else _NAMES[name]
                for name in declared_types(dict(schema)) - {"null"}
            )
        elif schema.get("properties") or schema.get("patternProperties"):
            types = _JSON  # objects and, by the standard, anything else
        for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
            if values is not None:
                types = _both(types, frozenset(_type_of(value) for value in values if value is not None))
        return types

    def _array(self, pointer: str, schema: Mapping[str, Any], depth: int) -> Type:
        items, first = schema.get("items"), pointers_in(pointer, schema, "prefixItems")
        parts = [self._types(part, depth + 1) for part in first]
        if isinstance(items, Mapping):
            parts.append(self._types(child(pointer, "items"), depth + 1))
        elif items is not False and not (items is None and first and schema.get("maxItems") == len(first)):
            return "json"
        item = _column_type(_either(parts))
        return "json" if item == "json" else ListOf(item)

    def _object(self, pointer: str, schema: Mapping[str, Any], depth: int) -> Type:
        extra = schema.get("additionalProperties", self._is_open)
        is_closed = extra is False and schema.get("unevaluatedProperties", False) is False
        if not is_closed or schema.get("patternProperties") or any(key in schema for key in _CONDITIONS):
            return "json"
        fields = {
            name: _column_type(self._types(child(pointer, "properties", name), depth + 1))
            for name in schema.get("properties", {})
        }
        return "json" if not fields or "json" in fields.values() else StructOf(tuple(fields.items()))


def _both(first: _Types, second: _Types) -> _Types:
    """Return the types of values that have types of both."""
    if first is None or second is None:
        return second if first is None else first
    if "json" in first | second or (_nested(first) and _nested(second) and _nested(first) != _nested(second)):
        return _JSON
    common = first & second
    is_whole = {"integer", "number"} <= first | second and "number" not in common
    return common | {"integer"} if is_whole else common


def _nested(types: frozenset[Type]) -> frozenset[Type]:
    return frozenset(type_ for type_ in types if not isinstance(type_, str))


def _either(alternatives: Iterable[_Types]) -> _Types:
    """Return the types of values that have a type of one of these."""
    union: frozenset[Type] = frozenset()
    for types in alternatives:
        if types is None:
            return None
        union |= types
    return union


def _column_type(types: _Types) -> Type:
    if types == frozenset[Type]({"integer", "number"}):
        return "number"
    return next(iter(types)) if types is not None and len(types) == 1 else "json"


def _type_of(value: Any) -> Type:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "number"
    return "text" if isinstance(value, str) else "json"

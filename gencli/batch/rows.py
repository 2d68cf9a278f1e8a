"""Rows of records: which columns are the prompt, the id, options or data.

A record is an OpenAI request line; with `template` or `prompt_column` it is data, with options in the column
`options`; otherwise its columns are prompt, messages, id and options. See docs/batch.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gencli.batch.formats.base import Cell, RecordFault
from gencli.batch.formats.jsonl import parse_json
from gencli.batch.messages import read_messages
from gencli.batch.openai import is_request, read_request
from gencli.batch.overrides import refuse_key, typed
from gencli.batch.records import ColumnError, Failure, Record, Row
from gencli.config.jobs import REQUEST_KEYS, Jobs
from gencli.errors import UsageError
from gencli.templates.chat_templates import has_system

if TYPE_CHECKING:
    from gencli.templates.prompt_templates import PromptTemplate

__all__ = ["RowOptions", "kept_columns", "listed", "make_rows", "nested_options", "prompt_of", "read_rows"]

_OPTIONS = "options"
_ID = "id"
_FILE = "file"  # column created by the reader of whole documents


@dataclass(frozen=True, slots=True)
class RowOptions:
    """The options that control how columns are read; fields are named after the options.

    `id_column`: "" is none, so that the index of a row is its id.
    """

    template: PromptTemplate | None = None
    prompt_column: str | None = None
    id_column: str | None = None
    keep_input: bool = False

    def __post_init__(self) -> None:
        if self.template and self.prompt_column:
            raise UsageError("`template` and `prompt_column` both define the prompt.", hint="Leave one out.")

    @property
    def is_data(self) -> bool:
        """Whether columns are data, with options in the column `options` only."""
        return self.template is not None or self.prompt_column is not None


def make_rows(records: Iterable[Record], options: RowOptions, jobs: Jobs) -> Iterator[Row]:
    """Yield a row for each record; a fault of a record or its options becomes the `failure` of the row."""

    def row(record: Record, name: str) -> Row:
        prompt, messages, given = _parts(record.columns, options)
        found = Row(record, name, _prompt(prompt), read_messages(messages), given)
        if "system" in given and has_system(found.messages):
            raise UsageError("The row has a system message and the option system. Leave one of them out.")
        jobs.job(given, is_chat=messages is not None)
        return found

    return read_rows(records, options, row)


def read_rows(
    records: Iterable[Record], options: RowOptions, make: Callable[[Record, str], Row]
) -> Iterator[Row]:
    """Yield the rows that `make` returns for a record and its id; an exception becomes the `failure`."""
    for record in records:
        yield _row(record, options, make)


def kept_columns(row: Row) -> dict[str, Any]:
    """Return the columns of the record, which `keep_input` copies to the field `input` of the result."""
    return dict(row.record.columns)


def _row(record: Record, options: RowOptions, make: Callable[[Record, str], Row]) -> Row:
    name = str(record.index)
    if record.failure:
        return Row(record, name, failure=record.failure)
    try:
        name = _id(record, options)
        return make(record, name)
    except RecordFault as error:
        return Row(record, name, failure=Failure("InputError", str(error)))
    except Exception as error:  # an error of any kind fails only this row
        return Row(record, name, failure=Failure.of(error))


def _naming(columns: Mapping[str, Any], options: RowOptions) -> str | None:
    """Return the column with the row's id; None if the id is the index."""
    if options.id_column is not None:
        return options.id_column or None
    if is_request(columns):
        return "custom_id"
    return _ID if _given(columns.get(_ID)) is not None else None


def _id(record: Record, options: RowOptions) -> str:
    column = _naming(record.columns, options)
    if column is None:
        return str(record.index)
    if column not in record.columns:
        raise ColumnError(f"The row has no column {column!r}. It has: {listed(record.columns)}.")
    value = record.columns[column]
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        if value in (None, ""):
            raise UsageError(f"The id (column {column}) is missing.")
        raise UsageError(
            f"The id (column {column}) is {value!r}, but has to be a text or a whole number.",
            hint="Name another column with `id_column`; '' takes the index of the row.",
        )
    return str(value)


def _parts(columns: Mapping[str, Any], options: RowOptions) -> tuple[Any, Any, dict[str, Any]]:
    """Return prompt, messages (one of them None) and options of a record."""
    if options.is_data:
        prompt = prompt_of(columns, options)
        is_list = isinstance(prompt, list)
        return (None, prompt, nested_options(columns)) if is_list else (prompt, None, nested_options(columns))
    if is_request(columns):
        return read_request({key: value for key, value in columns.items() if key != options.id_column})
    prompt, messages = (_given(columns.get(key)) for key in ("prompt", "messages"))
    if prompt is None and messages is None and columns.get("prompt") == "":
        raise UsageError("The prompt is empty.")
    if prompt is not None and messages is not None:
        raise UsageError("The row has both prompt and messages.", hint="Leave one of them out.")
    if prompt is None and messages is None:
        raise ColumnError(
            f"The row has neither prompt nor messages. It has: {listed(columns)}.",
            hint="Set `prompt_column` or `template`.",
        )
    return prompt, messages, _flat(columns, options)


def prompt_of(columns: Mapping[str, Any], options: RowOptions) -> Any:
    """Return the prompt of columns that are data: the rendered template, or a column's value."""
    if options.template:
        return options.template.render(columns)
    column = options.prompt_column or ""
    if column not in columns:
        raise ColumnError(f"The row has no column {column!r}. It has: {listed(columns)}.")
    if columns[column] is None:
        raise UsageError(f"The prompt (column {column}) is null.")
    return columns[column]


def nested_options(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a row with data columns: the column `options`, if it is an object."""
    value = columns.get(_OPTIONS)
    is_object = isinstance(value, Mapping) or (isinstance(value, str) and value.lstrip().startswith("{"))
    return _object(value) if is_object else {}


def _flat(columns: Mapping[str, Any], options: RowOptions) -> dict[str, Any]:
    """Return the options of a row with the columns prompt, messages, id and options."""
    nested = _given(columns.get(_OPTIONS))
    found = {} if nested is None else _object(nested)
    for key, value in columns.items():
        if key in ("prompt", "messages", _OPTIONS, _FILE, _naming(columns, options)):
            continue
        if key not in REQUEST_KEYS:
            if options.keep_input or (key == _ID and not options.id_column):
                continue
            raise refuse_key(key, "prompt", "messages", _OPTIONS)
        if _given(value) is None:
            continue
        if key in found:
            raise UsageError(f"{key} is both a column of the row and in its options. Leave one of them out.")
        found[key] = typed(key, value)
    return found


def listed(columns: Mapping[str, Any]) -> str:
    """Return the names of the columns, as messages show them."""
    return ", ".join(columns) or "no columns"


def _given(value: Any) -> Any:
    """Return the value; None for an empty cell of a table."""
    return None if isinstance(value, Cell) and not value else value


def _object(value: Any) -> dict[str, Any]:
    value = parse_json(value) if isinstance(value, str) else value
    if not isinstance(value, Mapping):
        raise UsageError(f"options is {value!r}, but has to be an object of options and values.")
    return {key: item for key, item in value.items() if item is not None}


def _prompt(value: Any) -> str | None:
    if value == "":
        raise UsageError("The prompt is empty.")
    if value is not None and not isinstance(value, str):
        raise UsageError(f"The prompt is {value!r}, but has to be a text.")
    return None if value is None else str(value)

"""The formats of results, a table: code asks for what a format is, never for its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gencli.json_text import to_json


@dataclass(frozen=True, slots=True)
class ResultFormat:
    """A format of results: plain text (`is_text`), which streams, or records.

    `encode` returns the lines of a record; it takes the encoding of the output, and whether the record is the
    first one there. `by_record`: a run writes each record when its prompt finishes; otherwise one document at
    the end. `is_lines`: a record is a line, so that commands write records one by one, never a list of them.
    `brackets` are around an array with commas; arrays without them are joined as they are. `suffixes`: of
    files, besides the name.
    """

    name: str
    encode: Callable[..., str] = str
    is_text: bool = False
    by_record: bool = False
    is_lines: bool = False
    brackets: tuple[str, str] = ("", "")
    suffixes: tuple[str, ...] = ()


def _json(record: Any, encoding: str = "utf-8", *, is_first: bool = True, indent: int | None = 2) -> str:
    return to_json(record, encoding=encoding, indent=indent) + "\n"


def _yaml(record: Any, encoding: str = "utf-8", *, is_first: bool = True) -> str:
    from gencli.yaml_text import to_yaml

    return ("" if is_first else "---\n") + to_yaml(record, encoding=encoding)


_TABLE = (
    ResultFormat("text", is_text=True),
    ResultFormat("json", _json, brackets=("[", "\n]\n")),
    ResultFormat("jsonl", partial(_json, indent=None), by_record=True, is_lines=True),
    ResultFormat("yaml", _yaml, by_record=True, suffixes=("yml",)),
)
FORMATS: Mapping[str, ResultFormat] = {form.name: form for form in _TABLE}
RECORDS = tuple(form.name for form in _TABLE if not form.is_text)
RECORDS_LISTED = " or ".join((", ".join(RECORDS[:-1]), RECORDS[-1]))
WHOLE = tuple(form.name for form in _TABLE if not form.is_lines)  # of commands with one result


def format_of(values: Mapping[str, Any]) -> ResultFormat:
    """Return the format of the options of a command by key, such as settings."""
    return FORMATS[values["format"]]


def array_parts(records: Iterable[Any], form: ResultFormat) -> Iterator[str]:
    """Yield the text of an array in parts, one a record, so that a long array is never stored whole."""
    (begin, end), is_empty = form.brackets, True
    for record in records:
        part = form.encode([record])
        if begin:
            part = (begin if is_empty else ",") + part.removeprefix(begin).removesuffix(end)
        is_empty = False
        yield part
    yield form.encode([]) if is_empty else end

"""CSV and TSV with a header. Quoted cells may contain newlines; all rows have the cells of the header."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO

from gencli.batch.formats.base import MAX_BYTES, Cell, Item, Lines, RecordFault, Unfit

__all__ = ["read_table"]


def read_table(stream: BinaryIO, name: str, *, delimiter: str) -> Iterator[Item]:
    """Yield the records of a table; values are of type Cell."""
    csv.field_size_limit(MAX_BYTES)  # the module's own limit, 128 KiB, is smaller than some documents
    lines = Lines(stream)
    rows = csv.reader(_Texts(lines), delimiter=delimiter, strict=True)
    try:
        header = _header(next(rows, []), delimiter)
    except (csv.Error, RecordFault, UnicodeError) as error:
        raise Unfit(f"has no readable header: {error}") from None
    while True:
        start = lines.number + 1
        try:
            cells = next(rows)
            if cells:
                yield start, dict(zip(header, _checked(cells, header), strict=True))
        except StopIteration:
            return
        except csv.Error as error:
            yield start, RecordFault(f"This is not a row of a table: {error}.").failure
        except RecordFault as fault:
            yield start, fault.failure


class _Texts:
    """Lines as text. Bytes that are not UTF-8 become surrogates, so that only their row is rejected."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def __iter__(self) -> _Texts:
        return self

    def __next__(self) -> str:
        return next(self._lines).decode(errors="surrogateescape")


def _header(names: list[str], delimiter: str) -> list[str]:
    if not names:
        raise Unfit("is empty: a table begins with the names of its columns")
    "".join(names).encode()  # raises UnicodeError for bytes that were not UTF-8
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise Unfit(f"has the column {twice[0]!r} more than once. Rename one of them")
    if len(names) == 1 and delimiter == "," and ";" in names[0]:
        raise Unfit("has its columns separated by semicolons, not commas. Use `delimiter` = ';'")
    return names


def _checked(cells: list[str], header: list[str]) -> list[Cell]:
    if len(cells) != len(header):
        have = f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"
        raise RecordFault(f"The row has {have}, the header {len(header)}. A cell with commas needs quotes.")
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        raise RecordFault("The row holds bytes that are not UTF-8 text.") from None
    return [Cell(cell) for cell in cells]

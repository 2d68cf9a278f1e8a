"""A survey of all rows before the model is loaded: counts, faults, duplicate ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

from gencli.batch.ids import IdCheck
from gencli.batch.records import Row

__all__ = ["Kind", "Survey", "survey"]

Kind = Literal["boolean", "integer", "number", "text"]
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of a survey. `columns` maps each column to a kind that can hold all its values.

    `num_misnamed` of the `num_read` records have wrong column names. `num_chats` rows need the chat template
    because of their own columns. `digest` is a hash of ids, prompts, messages and options of all rows.
    `options`: keys of all options set by any row.
    """

    num_rows: int
    num_faults: int
    columns: Mapping[str, Kind]
    digest: str
    options: frozenset[str] = frozenset()
    num_read: int = 0
    num_misnamed: int = 0
    num_chats: int = 0

    @property
    def has_only_chats(self) -> bool:
        """Whether all rows without a fault need the chat template."""
        return 0 < self.num_chats == self.num_rows - self.num_faults


def survey(read: Callable[[], Iterable[Row]], on_fault: Callable[[Row], None] | None = None) -> Survey:
    """Read all rows and return the survey; needs eight bytes of memory for each row.

    Raises UsageError for a duplicate id; rows are read again only if two hashes of ids are equal. `on_fault`
    is called with each faulty row.
    """
    ids, digest = IdCheck(), blake2b(digest_size=16)
    kinds: dict[str, Kind | None] = {}
    options: set[str] = set()
    num_rows = num_faults = num_read = num_misnamed = num_chats = 0
    for row in read():
        num_rows += 1
        digest.update(_bytes(row))
        options.update(row.options)
        for name, value in row.record.columns.items():
            kinds[name] = _wider(kinds.get(name), value)
        num_read += row.record.failure is None
        num_chats += not row.failure and bool(row.messages or row.options.get("chat"))
        if row.failure:
            num_faults += 1
            num_misnamed += row.failure.is_of_columns
            if on_fault:
                on_fault(row)
        if not row.record.failure:
            ids.add(row.id)
    ids.refuse_twice((row.id, row.record.place) for row in read() if not row.record.failure)
    columns: dict[str, Kind] = {name: kind or "text" for name, kind in kinds.items()}
    return Survey(
        num_rows,
        num_faults,
        columns,
        digest.hexdigest(),
        frozenset(options),
        num_read,
        num_misnamed,
        num_chats,
    )


def _bytes(row: Row) -> bytes:
    failure = row.failure and row.failure.message
    said = [row.record.index, row.id, row.prompt, row.messages, row.options, failure]
    said += [row.scored] if row.scored else []
    return json.dumps(said, sort_keys=True).encode() + b"\n"


def _wider(kind: Kind | None, value: Any) -> Kind | None:
    """Return the kind that can also hold the value; None if all values so far are null."""
    if value is None or kind == "text":
        return kind
    found: Kind = "text"
    if isinstance(value, bool):
        found = "boolean"
    elif isinstance(value, int) and value in _INT64:
        found = "integer"
    elif isinstance(value, float):
        found = "number"
    if kind in (None, found):
        return found
    return "number" if {kind, found} == {"integer", "number"} else "text"

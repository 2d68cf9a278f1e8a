"""What is wrong with a schema, found before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.errors import SchemaError
from gencli.structured.schema.contradictions import find_contradictions
from gencli.structured.schema.document import MAX_DEPTH
from gencli.structured.schema.drafts import Draft, draft_of
from gencli.structured.schema.meta import likely_keyword, meta_faults
from gencli.structured.schema.patterns import check_pattern
from gencli.structured.schema.pointers import child, shown
from gencli.structured.schema.refs import References, find_cycle, refs_in, walk

__all__ = ["MAX_BYTES", "MAX_FAULTS", "MAX_PATTERNS", "MAX_SUBSCHEMAS", "check_schema", "check_size"]

MAX_BYTES = 4 * 1024 * 1024
MAX_SUBSCHEMAS = 20_000
MAX_FAULTS = 5  # that are named at once
MAX_PATTERNS = 300_000  # characters of all patterns, each counted with 100 more for its own sake

_Fault = tuple[str, str]


def check_schema(schema: Any, deadline: Deadline = NEVER) -> None:
    """Raise SchemaError, with the first few faults and their JSON pointers, unless the schema can be used.

    Looked for are: size and depth, the rules of the declared draft, keywords that are one letter away from
    a real one, patterns that are none, references that lead nowhere or elsewhere, and what nothing satisfies.
    OutOfTime if that takes too long.
    """
    if not isinstance(schema, dict | bool):
        raise SchemaError(f"A schema is an object, true or false, not {json.dumps(schema)[:40]}.")
    _check_depth(schema)
    check_size(len(json.dumps(schema)))
    if any(True for _ in islice(walk(schema), MAX_SUBSCHEMAS, None)):
        raise SchemaError(f"The schema has more than {MAX_SUBSCHEMAS} schemas in it, which is the limit.")
    draft = draft_of(schema)
    for faults in (
        _written(schema, draft, deadline),
        _patterns(schema, deadline),
        _referring(schema, deadline),
        find_contradictions(schema, deadline),
    ):
        found = list(islice(faults, MAX_FAULTS + 1))
        if found:
            raise _error(found)


def check_size(num_bytes: int) -> None:
    """Raise SchemaError if a schema has more bytes than are read."""
    if num_bytes > MAX_BYTES:
        raise SchemaError(f"The schema has {num_bytes} bytes, but the limit is {MAX_BYTES}.")


def _check_depth(schema: Any) -> None:
    layer, depth = [schema], 0
    while layer := [below for value in layer for below in _parts(value)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise SchemaError(f"The schema is nested more than {MAX_DEPTH} deep.")


def _parts(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _written(root: Any, draft: Draft, deadline: Deadline) -> Iterator[_Fault]:
    """What one can see of each subschema by itself."""
    for pointer, schema in deadline.watch(walk(root)):
        if not isinstance(schema, dict):
            continue
        yield from ((pointer + below, text) for below, text in meta_faults(schema, draft))
        for keyword in deadline.watch(schema):
            if (near := likely_keyword(keyword)) is not None:
                yield (
                    child(pointer, keyword),
                    f"{keyword!r} is no keyword; {near!r} is, or name it 'x-{keyword}'",
                )
        if "$schema" in schema and _is_of_other_draft(schema, draft):
            yield (
                child(pointer, "$schema"),
                f"it is another draft than the whole schema, which is {draft.name}",
            )


def _is_of_other_draft(schema: dict[str, Any], draft: Draft) -> bool:
    try:
        return draft_of(schema) != draft
    except SchemaError:
        return True


def _patterns(root: Any, deadline: Deadline) -> Iterator[_Fault]:
    cost = 0
    for pointer, pattern in deadline.watch(_patterns_in(root)):
        cost += len(pattern) + 100
        if cost > MAX_PATTERNS:
            yield pointer, f"the schema has too many patterns: the limit is {MAX_PATTERNS} characters of them"
            return
        try:
            check_pattern(pattern)
        except ValueError as error:
            yield pointer, f"the pattern {pattern[:60]!r} is no regular expression: {error}"


def _patterns_in(root: Any) -> Iterator[tuple[str, str]]:
    for pointer, schema in walk(root):
        if isinstance(schema, dict) and "pattern" in schema:
            yield child(pointer, "pattern"), schema["pattern"]
        if isinstance(schema, dict):
            named = schema.get("patternProperties", ())
            yield from ((child(pointer, "patternProperties", key), key) for key in named)


def _referring(root: Any, deadline: Deadline) -> Iterator[_Fault]:
    references = References(root)
    is_sound = True
    for pointer, schema in deadline.watch(walk(root)):
        for _, ref in refs_in(schema):
            try:
                references.resolve(ref, pointer)
            except SchemaError as error:
                is_sound = False
                yield error.pointer, error.message.removeprefix(f"{error.pointer}: ").removesuffix(".")
    if is_sound and (cycle := find_cycle(root, deadline)) is not None:
        yield cycle, "its references come back to it before they say anything of the value"


def _error(found: list[_Fault]) -> SchemaError:
    lines = [f"{shown(pointer)}: {text}." for pointer, text in found[:MAX_FAULTS]]
    if len(found) > MAX_FAULTS:
        lines.append("There is more.")
    return SchemaError("The schema cannot be used.\n  " + "\n  ".join(lines), pointer=found[0][0])

"""The check of a schema, before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from gencli.json_reader import DOCUMENT
from gencli.structured.check.contradictions import find_contradictions
from gencli.structured.check.meta import meta_faults
from gencli.structured.check.misspelled import misspelled
from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.errors import SchemaError
from gencli.structured.regex.ecma_search import check_pattern
from gencli.structured.schema.drafts import DRAFTS, Draft, draft_of
from gencli.structured.schema.pointers import child, shown
from gencli.structured.schema.published import with_published
from gencli.structured.schema.refs import References, find_cycle, longest_chain, refs_in, walk

__all__ = [
    "MAX_BYTES",
    "MAX_CHAIN",
    "MAX_FAULTS",
    "MAX_PATTERNS",
    "MAX_SUBSCHEMAS",
    "check_schema",
    "check_size",
]

MAX_BYTES = 4 * 1024 * 1024
MAX_SUBSCHEMAS = 20_000
MAX_CHAIN = 200  # nested subschemas for one value; the final check fails at about 300
MAX_FAULTS = 5  # faults in one message
MAX_PATTERNS = 300_000  # characters of all patterns, plus 100 for each pattern

_Fault = tuple[str, str]


def check_schema(schema: Any, deadline: Deadline = NEVER) -> tuple[str, ...]:
    """Return notices about a schema that can be used; raise SchemaError with the first few faults otherwise.

    Checked are size and depth, the meta-schema of the declared draft, misspelled keywords that would change
    which values are valid, patterns, references, and contradictions. The notices name optional parts that no
    value satisfies, and drafts that are declared in subschemas. Raises OutOfTime.
    """
    if not isinstance(schema, dict | bool):
        raise SchemaError(f"A schema is an object, true or false, not {json.dumps(schema)[:40]}.")
    _check_depth(schema)
    schema = with_published(schema)
    check_size(len(json.dumps(schema)))
    if any(True for _ in islice(walk(schema), MAX_SUBSCHEMAS, None)):
        raise SchemaError(f"The schema has more than {MAX_SUBSCHEMAS} schemas in it, which is the limit.")
    draft = draft_of(schema)
    for faults in (
        _written(schema, draft, deadline),
        _patterns(schema, deadline),
        _referring(schema, deadline),
    ):
        _refuse(tuple(islice(faults, MAX_FAULTS + 1)))
    contradictions = find_contradictions(schema, MAX_FAULTS + 1, deadline)
    _refuse(contradictions.fatal)
    drafts = islice(_inner_drafts(schema, draft), MAX_FAULTS + 1)
    return (
        *_remarks("Some parts of the schema are left out: nothing satisfies them", contradictions.optional),
        *_remarks(f"All of the schema is read as draft {draft.name}", tuple(drafts)),
    )


def check_size(num_bytes: int) -> None:
    """Raise SchemaError if a schema has more than MAX_BYTES bytes."""
    if num_bytes > MAX_BYTES:
        raise SchemaError(f"The schema has {num_bytes} bytes, but the limit is {MAX_BYTES}.")


def _check_depth(schema: Any) -> None:
    layer, depth = [schema], 0
    while layer := [below for value in layer for below in _parts(value)]:
        depth += 1
        if depth > DOCUMENT.max_depth:
            raise SchemaError(f"The schema is nested more than {DOCUMENT.max_depth} deep.")


def _parts(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _written(root: Any, draft: Draft, deadline: Deadline) -> Iterator[_Fault]:
    """Yield the faults of each subschema on its own."""
    for pointer, schema in deadline.watch(walk(root)):
        if not isinstance(schema, dict):
            continue
        yield from ((pointer + below, text) for below, text in meta_faults(schema, draft))
        for keyword, value in deadline.watch(schema.items()):
            if (near := misspelled(keyword, value, draft)) is not None:
                yield (
                    child(pointer, keyword),
                    f"{keyword!r} is no keyword; {near!r} is, and it would change what the schema accepts. "
                    f"Correct it, or name a remark 'x-{keyword}'",
                )
        if "$schema" in schema and (fault := _of_other_draft(schema, draft)):
            yield child(pointer, "$schema"), fault


def _of_other_draft(schema: dict[str, Any], draft: Draft) -> str:
    """Return the reason why a subschema's draft cannot be used inside `draft`; "" if it can."""
    try:
        inner = draft_of(schema)
    except SchemaError:
        return "it is no draft that is known here"
    is_newer = DRAFTS.index(inner) < DRAFTS.index(draft)
    return f"it is a newer draft than the whole schema, which is {draft.name}" if is_newer else ""


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
    if not is_sound:
        return
    if (cycle := find_cycle(root, deadline)) is not None:
        yield cycle, "its references come back to it before they say anything of the value"
        return
    depth, pointer = longest_chain(root, deadline)
    if depth > MAX_CHAIN:
        yield (
            pointer,
            f"{depth} schemas look at one value here, each through the one before; the limit is {MAX_CHAIN}, "
            "as no document could be checked",
        )


def _inner_drafts(root: Any, draft: Draft) -> Iterator[_Fault]:
    """Yield the places of subschemas that declare a draft."""
    for pointer, schema in walk(root):
        if pointer and isinstance(schema, dict) and "$schema" in schema:
            inner = draft_of(schema)
            again = " again" * (inner == draft)
            yield (
                child(pointer, "$schema"),
                f"draft {inner.name} is declared here{again}, which changes nothing",
            )


def _refuse(found: tuple[_Fault, ...]) -> None:
    if found:
        raise SchemaError(_told("The schema cannot be used.", found), pointer=found[0][0])


def _remarks(what: str, found: tuple[_Fault, ...]) -> list[str]:
    return [_told(f"{what}.", found)] if found else []


def _told(what: str, found: tuple[_Fault, ...]) -> str:
    """Return a message with the first few faults, one a line."""
    lines = [what, *(f"{shown(pointer)}: {text}." for pointer, text in found[:MAX_FAULTS])]
    return "\n  ".join(lines + ["There is more."] * (len(found) > MAX_FAULTS))

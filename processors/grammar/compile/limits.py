"""Size checks before compiling: refuse oversized grammars, find those too small to need a child process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from processors.constraint import Constraint
from processors.errors import GrammarError

__all__ = ["MAX_CHARACTERS", "MAX_DEPTH", "check_size", "is_small"]

MAX_CHARACTERS = 1 << 22  # characters of a grammar's text
MAX_DEPTH = 500  # nested brackets of a JSON text

# Measured with 150k ids on two cores: xgrammar takes up to 40 ms per subschema, and seconds for a bounded
# string. llguidance recurses over chains of rules: about 200 fill a stack of 512 KiB, 1,000 one of 2 MiB.
_SMALL_TEXT = {"xgrammar": 2000, "llguidance": 4000}
_SMALL_REGEX = 100
_SUBSCHEMAS = 24
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*+"')
_UNBOUNDED_COST = re.compile(r"\{|\(.*[*+].*\)|\\[pPB]|\[\^|(?<!\\)\..*\.")
_PLAIN_KEYWORDS = frozenset(
    "$schema $id $comment type title description default examples enum const properties required items "
    "additionalProperties anyOf minimum maximum exclusiveMinimum exclusiveMaximum".split()
)


def check_size(constraint: Constraint) -> None:
    """Raise GrammarError for a text that is too long or JSON that is nested too deeply."""
    if len(constraint.text) > MAX_CHARACTERS:
        raise GrammarError(
            f"The {constraint.kind} has {len(constraint.text):,} characters; the limit is {MAX_CHARACTERS:,}."
        )
    if constraint.kind in ("json_schema", "structural_tag"):
        depth = _depth(constraint.text)
        if depth > MAX_DEPTH:
            raise GrammarError(f"The {constraint.kind} is {depth:,} levels deep; the limit is {MAX_DEPTH}.")


def is_small(constraint: Constraint) -> bool:
    """Whether a back end certainly compiles this in about a second, with little memory and stack."""
    if constraint.backend == "trie":  # plain Python with its own limit
        return True
    if len(constraint.text) > _SMALL_TEXT.get(constraint.backend, 0):
        return False
    if constraint.backend == "llguidance":  # llguidance bounds time and memory itself
        return True
    if constraint.kind == "regex":
        return len(constraint.text) <= _SMALL_REGEX and not _UNBOUNDED_COST.search(constraint.text)
    return constraint.kind == "json_schema" and _is_plain_schema(constraint.text)


def _depth(text: str) -> int:
    steps = ((c in "[{") - (c in "]}") for c in _STRINGS.sub("", text))
    return max(accumulate(steps), default=0)


def _is_plain_schema(text: str) -> bool:
    if text.count("{") > _SUBSCHEMAS:
        return False
    try:
        return set(_keywords(json.loads(text))) <= _PLAIN_KEYWORDS
    except (ValueError, AttributeError):  # a faulty schema; the child process reports it
        return False


def _keywords(schema: Any) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    yield from schema.keys()
    several = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for inner in (*several, schema.get("items", True), schema.get("additionalProperties", True)):
        yield from _keywords(inner)

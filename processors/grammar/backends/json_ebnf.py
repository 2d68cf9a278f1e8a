"""White space of JSON in the grammars that xgrammar makes of JSON schemas.

xgrammar allows white space around every sign, so also before "," and ":", where people write none: a model
that writes a line break to end an object can then go on with a comma only. xgrammar has no option for it, but
prints its grammars and reads them again. There the white space is a rule of its own with a count:

    root ::= (("{" whitespace_1{0, 8} "\"a\"" whitespace{0, 8} ":" whitespace_2{0, 8} ...

Quotes inside a literal, a class or a regular expression are printed with a backslash, so nothing else looks
like that. Grammars that a user wrote are not touched.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

from processors.grammar.backends.json_values import spelled_out

__all__ = ["grammar_of_schema", "with_schema_grammars"]

_SPACE = re.compile(r'(whitespace(?:_\d+)?\{0, )\d+\}( "[,:]")?')
# With a count of 1 the white space is printed as a rule without a name of its own.
_LEAST = 2


def with_schema_grammars(xgrammar: Any, value: Any, whitespace: int) -> Any:
    """Return a structural tag with each format `json_schema` as a format `grammar`.

    `whitespace` is the longest run of white space where a format does not say it.
    """
    if isinstance(value, list):
        return [with_schema_grammars(xgrammar, item, whitespace) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "json_schema":
        space = value.get("max_whitespace_cnt", whitespace)
        schema = spelled_out(value.get("json_schema")) if space else value.get("json_schema")
        content = {**value, "json_schema": schema, "max_whitespace_cnt": max(space, _LEAST)}
        grammar = xgrammar.Grammar.from_structural_tag({"type": "structural_tag", "format": content})
        return {"type": "grammar", "grammar": _spaced(str(grammar), space)}
    return {name: with_schema_grammars(xgrammar, item, whitespace) for name, item in value.items()}


def grammar_of_schema(xgrammar: Any, schema: str, whitespace: int) -> str:
    """Return the EBNF of a JSON schema; `whitespace` is the longest run of white space, 0 for none."""
    if whitespace and '"enum"' in schema:
        with suppress(ValueError):  # xgrammar says what is wrong
            schema = json.dumps(spelled_out(json.loads(schema)), ensure_ascii=False)
    grammar = xgrammar.Grammar.from_json_schema(
        schema, any_whitespace=True, max_whitespace_cnt=max(whitespace, _LEAST), strict_mode=False
    )
    return _spaced(str(grammar), whitespace)


def _spaced(grammar: str, most: int) -> str:
    """Return the grammar with runs of at most `most` signs of white space, and none before "," and ":".

    A count of 0 stays in the grammar: without it xgrammar copies rules into one another, and an object of 800
    optional properties takes five times as long to compile.
    """
    return _SPACE.sub(lambda run: f"{run[1]}0}}{run[2]}" if run[2] else f"{run[1]}{most}}}", grammar)

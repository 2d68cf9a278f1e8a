"""A sample of a regular expression is a short text that it matches."""

import json
import re

from processors.grammar.short_texts import sample, samples_of
from processors.request_values import Constraint

PATTERNS = {
    r"\.json$": ".json",
    "^[a-z]+@[a-z]+[.]com$": "a@a.com",
    "^.*-v[0-9]{2,}[.](zip|gz)$": "-v00.gz",
    r"^\d+\s\w[^a]$": "0 a0",
    "(foo|ba)?x{3}": "xxx",
    "[^\\s]": "a",
}


def test_a_sample_is_matched():
    for pattern, text in PATTERNS.items():
        assert sample(pattern) == text, pattern
        assert re.search(pattern, text), pattern


def test_what_is_not_known_or_long_has_none():
    for pattern in ("(", "(?!a)b", "a{65}", "(a{50}){50}", "[a{", r"(a)\1", "(" * 500 + ")" * 500):
        assert sample(pattern) is None, pattern


def test_a_schema_has_those_of_its_patterns_as_json_writes_them():
    schema = {"properties": {"a": {"pattern": 'x"$'}, "b": {"items": {"pattern": "^y"}}, "pattern": {}}}
    assert set(samples_of(Constraint("json_schema", json.dumps(schema), "xgrammar"))) == {'x\\"', "y"}
    assert samples_of(Constraint("regex", "a+b", "xgrammar")) == ("ab",)
    assert samples_of(Constraint("choice", "[]", "trie")) == ()

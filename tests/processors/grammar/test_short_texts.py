"""Texts that lead to short documents, samples of patterns, and the budget of a search."""

import json
import re

from processors.grammar.short_texts import Guide, SearchBudget, guide_of, sample, samples_of
from processors.request_values import Constraint

LARGE = {"type": "object", "properties": {"text": {"type": "string", "minLength": 100}}, "required": ["text"]}


def guide(schema):
    return guide_of(Constraint("json_schema", json.dumps(schema), "xgrammar"))


def test_required_names_come_first_and_cheap_ones_before_others():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "null"}, "large": LARGE, "n": {"type": "integer"}, "list": LARGE},
        "required": ["list", "n"],
    }
    assert guide(schema).names == (b"n", b"text", b"list", b"a", b"large")


def test_listed_texts_are_spelled_as_in_a_string():
    schema = {"anyOf": [{"enum": ["long", 'a"', 3]}, {"const": "é"}]}
    assert guide(schema).values == ("é".encode(), b'a\\"', b"long")


def test_growth_is_that_of_the_largest_of_the_shortest_values():
    small = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert guide(small).growth < 10
    assert 110 < guide({**small, "additionalProperties": LARGE}).growth < 120
    assert guide({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/l"}], "$defs": {"l": LARGE}}).growth > 100


def test_a_value_that_contains_itself_has_no_length_and_its_way_out_has_one():
    endless = {"type": "array", "items": {"$ref": "#/$defs/e"}, "minItems": 1}
    tree = {"anyOf": [endless, {"type": "null"}]}
    assert guide({"properties": {"e": {"$ref": "#/$defs/e"}}, "$defs": {"e": endless}}).growth == 0
    assert 4 < guide({"properties": {"t": {"$ref": "#/$defs/e"}}, "$defs": {"e": tree}}).growth < 20


def test_many_items_and_names_are_counted_not_listed():
    items = {"type": "array", "items": {"type": "boolean"}, "minItems": 10**12}
    assert guide({"anyOf": [{"type": "null"}, items]}).growth == 5 * 10**12 + 1 - 4
    names = {"type": "object", "minProperties": 10**12}
    assert guide({"anyOf": [{"type": "null"}, names]}).growth > 10**12


def test_rests_begin_where_the_string_stands_and_names_that_are_there_come_last():
    texts = Guide(names=(b"ab", b"ac", b"b"), values=(b"a", b"x"))
    assert list(texts.rests(b'{"a', of_names=True)) == [b"b", b"c"]
    assert list(texts.rests(b'{"ab":"', of_names=False)) == [b"a", b"x"]
    assert list(texts.rests(b'{"ab":1,"', of_names=True)) == [b"ac", b"b", b"ab"]


def test_other_grammars_have_none():
    assert guide_of(Constraint("regex", "a+", "xgrammar")).names == ()
    assert (
        guide(True).names
        == guide({"properties": {"required": {}, "type": {}}, "type": "string"}).values
        == ()
    )


PATTERNS = {
    r"\.json$": ".json",
    "^[a-z]+@[a-z]+[.]com$": "a@a.com",
    "^.*-v[0-9]{2,}[.](zip|gz)$": "-v00.gz",
    r"^\d+\s\w[^a]$": "0 a0",
    "(foo|ba)?x{3}": "xxx",
    "[^\\s]": "a",
}


def test_a_sample_is_matched_and_what_is_not_known_or_long_has_none():
    for pattern, text in PATTERNS.items():
        assert sample(pattern) == text, pattern
        assert re.search(pattern, text), pattern
    for pattern in ("(", "(?!a)b", "a{65}", "(a{50}){50}", "[a{", r"(a)\1", "(" * 500 + ")" * 500):
        assert sample(pattern) is None, pattern


def test_a_schema_has_those_of_its_patterns_as_json_writes_them():
    schema = {"properties": {"a": {"pattern": 'x"$'}, "b": {"items": {"pattern": "^y"}}, "pattern": {}}}
    assert set(samples_of(Constraint("json_schema", json.dumps(schema), "xgrammar"))) == {'x\\"', "y"}
    assert samples_of(Constraint("regex", "a+b", "xgrammar")) == ("ab",)
    assert samples_of(Constraint("choice", "[]", "trie")) == ()


def test_calls_are_counted_until_none_is_left_and_half_can_be_taken():
    work = SearchBudget(3)
    assert list(work.each(range(10))) == [0, 1]
    assert work.is_spent
    assert not work.spend()
    work = SearchBudget(20)
    assert (work.spend(8), work.spend(8), work.spend(8), work.is_spent) == (True, True, False, True)
    work = SearchBudget(9)
    assert len(list(work.half().each(range(10)))) == 3
    assert len(list(work.each(range(10)))) == 4

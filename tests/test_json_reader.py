"""A document is read as RFC 8259 writes it; whatever else readers let pass is refused with its place."""

import json
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gencli.json_text import DOCUMENT, DocumentError, JsonLimits, parse_json
from gencli.structured.schema_errors import compact

REFUSED = [
    ("", 1, 1, "ends where a value"), (" \n ", 2, 2, "ends where a value"),
    ("\ufeff{}", 1, 1, "byte order mark"), ("{} {}", 1, 4, "behind the end"),
    ("[1] // done", 1, 5, "behind the end"), ('{"a": 1,\n "a": 2}', 2, 2, "twice"),
    ('{"a": {"b": 1, "\\u0062": 2}}', 1, 16, "twice"), ("[NaN]", 1, 2, "no JSON value"),
    ("Infinity", 1, 1, "no JSON value"), ("[-Infinity]", 1, 2, "no JSON number"),
    ("True", 1, 1, "no JSON value"), ("nullx", 1, 1, "no JSON value"), ("'a'", 1, 1, "no JSON value"),
    ("\x0c1", 1, 1, "no JSON value"), ("\xa01", 1, 1, "no JSON value"), ("[01]", 1, 2, "no JSON number"),
    ("[1.]", 1, 2, "no JSON number"), ("[-]", 1, 2, "no JSON number"), ("[+1]", 1, 2, "no JSON value"),
    ("[.5]", 1, 2, "no JSON value"), ("[1e5.5]", 1, 2, "no JSON number"), ("[١]", 1, 2, "no JSON value"),
    ("[1١]", 1, 2, "no JSON number"), ("0x10", 1, 1, "no JSON number"), ("[1,]", 1, 4, "no JSON value"),
    ("[1 2]", 1, 4, "comma or \\]"), ("[1", 1, 3, "end of the text"),
    ('{"a":1,}', 1, 8, "key in double quotes"), ("{a:1}", 1, 2, "key in double quotes"),
    ('{"a" 1}', 1, 6, "colon"), ('{"a":1]', 1, 7, "comma or }"), ("]", 1, 1, "no JSON value"),
    ('"a', 1, 1, "within the string"), ('"a\tb"', 1, 3, "control character"),
    ('"a\nb"', 1, 3, "control character"), ('"a\\x"', 1, 3, "no escape"), ('"\\u12g4"', 1, 2, "no escape"),
    ('"\\', 1, 2, "no escape"), ('["\\ud800"]', 1, 2, "surrogate"), ('["\\ude00\\ud83d"]', 1, 2, "surrogate"),
    ('["\ud800"]', 1, 2, "surrogate"), ('{"\\udfff": 1}', 1, 2, "surrogate"), ("1" * 1001, 1, 1, "digits"),
    ("[1e2000]", 1, 2, "digits"), ("[1e-99999999999999999999]", 1, 2, "digits"),
]  # fmt: skip


def test_a_text_that_is_no_document_is_refused_at_its_place():
    for text, line, column, part in REFUSED:
        with pytest.raises(DocumentError, match=part) as caught:
            parse_json(text)
        assert (caught.value.line, caught.value.column) == (line, column), (text, line, column, part)
        assert caught.value.exit_code == 6, (text, line, column, part)


def test_depth_has_a_limit_that_is_named():
    for opening in ["[", '{"a":']:
        closing = "]" if opening == "[" else "}"
        assert parse_json(opening * DOCUMENT.max_depth + "1" + closing * DOCUMENT.max_depth), opening
        with pytest.raises(DocumentError, match=f"more than {DOCUMENT.max_depth} deep"):
            parse_json(opening * 1_000_000)


def test_depth_is_that_of_values_not_the_number_of_brackets():
    for depth, beside in product([1, 63, 64, 65, 200], [0, 300]):
        limits = JsonLimits(max_depth=64)
        text = "[" + "[]," * beside + "[" * (depth - 1) + "1" + "]" * (depth - 1) + "]"
        if depth > 64:
            with pytest.raises(DocumentError, match="more than 64 deep"):
                parse_json(text, limits)
        else:
            assert parse_json(text, limits) == json.loads(text), (beside, depth)


@given(st.text(alphabet='{}[]:,"\\ \n\t01.-+eEtrufalsn\x00\ud800', max_size=12))
def test_whatever_is_accepted_is_read_as_json_reads_it(text):
    try:
        value = parse_json(text)
    except DocumentError:
        return
    assert compact(value) == compact(json.loads(text))


def test_numbers_keep_their_value():
    cases = [
        ("12345678901234567890123", int, "12345678901234567890123"), ("-0", int, "0"), ("1.10", float, "1.1"),
        ("1E2", float, "100.0"), ("-0.0", float, "-0.0"),
        ("0.1000000000000000055", Decimal, "0.1000000000000000055"), ("1e400", Decimal, "1E+400"),
        ("1e-400", Decimal, "1E-400"),
    ]  # fmt: skip
    for text, kind, printed in cases:
        assert type(parse_json(text)) is kind, text
        assert compact(parse_json(text)) == printed, text
        assert Decimal(printed) == Decimal(text), text


def test_doubles_are_the_nearest_floats():
    assert parse_json("3.14159265358979323846", JsonLimits(has_decimals=False)) == 3.141592653589793
    with pytest.raises(DocumentError, match="too large for a double"):
        parse_json("1e400", JsonLimits(has_decimals=False))

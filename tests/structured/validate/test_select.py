"""A part of a document comes out raw; a part that is not there is answered with what is."""

import re

import pytest

from gencli.errors import GenerationError, UsageError
from gencli.structured.schema_errors import check_pointer, select
from tests.helpers.refusal import refusal

DOCUMENT = {
    "name": 'Ä "q"\n',
    "tags": ["x", {"y": 1.5}],
    "a/b": None,
    "m~n": True,
    "": 0,
    "01": {},
    "none": [],
}


def test_a_pointer_selects_a_part():
    for pointer, text in [
        ("/name", 'Ä "q"\n'),
        ("/tags", '["x",{"y":1.5}]'),
        ("/tags/0", "x"),
        ("/tags/1/y", "1.5"),
        ("/a~1b", "null"),
        ("/m~0n", "true"),
        ("/", "0"),
        ("/01", "{}"),
    ]:
        assert select(DOCUMENT, pointer) == text, pointer


def test_the_empty_pointer_selects_all():
    assert select([1, "a"], "") == '[1,"a"]'
    assert select("a", "") == "a"


def test_a_part_that_is_missing_is_answered_with_what_is_there():
    for pointer, part in [
        ("/age", "'name', 'tags'"),
        ("/tags/2", "at /tags is a list of 2"),
        ("/tags/-1", "at /tags is a list of 2"),
        ("/tags/00", "at /tags is a list of 2"),
        ("/tags/99999999999", "at /tags is a list of 2"),
        ("/tags/1/z", "at /tags/1 is an object with 'y'"),
        ("/tags/1/y/z", "1.5, which has no parts"),
        ("/01/a", "an empty object"),
        ("/none/0", "an empty list"),
    ]:
        assert re.search(part, refusal(GenerationError, select, DOCUMENT, pointer)), pointer


def test_a_long_list_of_keys_is_cut():
    with pytest.raises(GenerationError, match="'k11' and 88 more"):
        select({f"k{n}": n for n in range(100)}, "/x")


def test_a_text_that_is_no_pointer_is_refused_before_the_run():
    for pointer in ["name", ".name", "a/b", "/a~2", "/a~"]:
        assert re.search("JSON pointer", refusal(UsageError, check_pointer, pointer)), pointer

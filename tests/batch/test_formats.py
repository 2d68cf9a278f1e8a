"""Formats of the input: one faulty row leaves the others readable."""

import io

import pytest
from hypothesis import strategies as st

from gencli.batch import input_formats as arrays
from gencli.batch import input_formats as texts
from gencli.batch.batch_records import Failure
from gencli.batch.input_formats import LIMITS, MAX_BYTES, READERS, Lines, RecordFault, Unfit

FLOATS = st.floats(allow_nan=False, allow_infinity=False)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | FLOATS | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def read(format_name, data):
    return list(READERS[format_name](io.BytesIO(data), "f"))


def shown(items):
    return [found.message if isinstance(found, Failure) else found for _, found in items]


def test_a_broken_array_says_what_is_wrong_at_its_end():
    cases = [
        (b'[{"a": 1}', "The array has no end; the file may be cut off here."),
        (b'[{"a": "', "The array has no end; the file may be cut off here."),
        (b'[{"a": 1},]', "This is not JSON: the document ends where a value has to follow, at column 1."),
        (b'[{"a": 1}] [', "There is text after the end of the array."),
        (b'[{"a": 1 "b"}]', "This is not JSON: '\"' stands where a comma or } has to follow, at column 9."),
    ]
    for data, message in cases:
        assert shown(read("json", data))[-1] == message, data


def test_values_are_nested_up_to_a_limit():
    for depth, is_fine in [(LIMITS.max_depth, True), (LIMITS.max_depth + 1, False)]:
        inner = b"[" * (depth - 1) + b"]" * (depth - 1)
        ((_, found),) = read("jsonl", b'{"a": ' + inner + b', "b": "[[[{"}')
        assert isinstance(found, dict) == is_fine, depth


def test_elements_have_the_lines_where_they_begin():
    data = b'\n[\n {"a":\n1},\n\n {"a": 2} ]'
    assert [line for line, _ in read("json", data)] == [3, 6]


def test_a_long_element_is_dropped_while_it_is_read(monkeypatch):
    monkeypatch.setattr(arrays, "_CHUNK", 8)
    splitter = arrays._Splitter(io.BytesIO(b'[{"a": "' + b"x" * 100 + b'"}, {"a": 1}]'), limit=20)
    (_, fault), (_, good) = splitter.elements()
    assert isinstance(fault, RecordFault)
    assert good == b'{"a": 1}'


def test_an_empty_array_has_no_records():
    assert read("json", b"[]") == read("json", b" [ \n] ") == []
    with pytest.raises(Unfit, match="is not a JSON array"):
        read("json", b"")


def test_cells_may_hold_newlines_quotes_and_delimiters():
    data = b'\xef\xbb\xbfid,text\r\n1,"a ""b"",\r\nc"\r\n\r\n2,d\r\n'
    assert read("csv", data) == [(2, {"id": "1", "text": 'a "b",\r\nc'}), (5, {"id": "2", "text": "d"})]


def test_a_faulty_row_is_a_failure_and_the_rows_after_it_are_read():
    cases = [
        (b"1,2,3", "The row has 3 cells, the header 2."),
        (b"1", "The row has 1 cell, the header 2."),
        (b"1,\xff", "The row holds bytes that are not UTF-8 text."),
        (b'1,"a"b', "This is not a row of a table: ',' expected after '\"'."),
        (b"1," + b"x" * (MAX_BYTES + 1), "The record is longer than the limit of 16 MiB"),
    ]
    for row, message in cases:
        (first, failure), (second, good) = read("csv", b"a,b\n" + row + b"\n1,2\n")
        assert (first, second, good) == (2, 3, {"a": "1", "b": "2"}), row
        assert failure.message.startswith(message), row
    (_, unended) = shown(read("csv", b'a,b\n1,2\n"3,4\n5,6\n'))
    assert unended == "This is not a row of a table: unexpected end of data."


def test_a_table_without_a_usable_header_is_refused():
    cases = [
        (b"", "is empty"), (b"a,a\n", "has the column 'a' more than once"),
        (b"a;b\n1;2\n", "separated by semicolons"), (b"\xff\xfea\x00", "is UTF-16"),
        (b"a,\xff\n", "has no readable header"),
    ]  # fmt: skip
    for data, message in cases:
        with pytest.raises(Unfit, match=message):
            read("csv", data)


TEXT = b"\xef\xbb\xbfone\r\ntwo\n\n \nthree\n"


def test_text_is_a_prompt_a_line_a_paragraph_or_a_file():
    assert read("lines", TEXT) == [(1, {"prompt": "one"}), (2, {"prompt": "two"}), (5, {"prompt": "three"})]
    assert read("paragraphs", TEXT) == [(1, {"prompt": "one\r\ntwo"}), (5, {"prompt": "three"})]
    whole = "one\r\ntwo\n\n \nthree"
    assert read("document", TEXT) == [(1, {"prompt": whole, "file": "f"})]
    assert read("document", b" \n") == []


def test_a_bad_byte_in_text_is_a_failure():
    for name in ["lines", "paragraphs"]:
        bad, good = shown(read(name, b"a\xff\n\nb\n"))
        assert bad.startswith("This is not UTF-8 text: byte 0xff at offset 1"), name
        assert good == {"prompt": "b"}, name


def test_a_paragraph_of_many_lines_has_a_limit_too(monkeypatch):
    monkeypatch.setattr(texts, "MAX_BYTES", 10)
    long, short = shown(read("paragraphs", b"abcdef\n" * 3 + b"\nb\n"))
    assert long.startswith("The record is longer than")
    assert short == {"prompt": "b"}


def test_lines_that_are_too_long_are_skipped_whole():
    lines = Lines(io.BytesIO(b"x" * 25 + b"\nshort\n"), limit=10)
    with pytest.raises(RecordFault, match="longer than"):
        next(lines)
    assert (next(lines), lines.number) == (b"short\n", 2)

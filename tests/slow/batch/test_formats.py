"""Formats of the input, on generated content."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gencli.batch.input_formats import MAX_BYTES, read_array
from tests.batch.test_formats import VALUES, read, shown

RECORDS = st.lists(st.dictionaries(st.text(max_size=8), VALUES, max_size=4), max_size=5)


class Trickle(io.BytesIO):
    """A stream that hands over few bytes at a time."""

    def read(self, size=-1):
        return super().read(min(size, 3) if size > 0 else size)


@given(RECORDS)
def test_json_lines_are_read_back(records):
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    assert shown(read("jsonl", data)) == records


@pytest.mark.parametrize("stream", [io.BytesIO, Trickle])
@given(records=RECORDS, indent=st.sampled_from([None, 2]), is_ascii=st.booleans())
def test_json_arrays_are_read_back_however_the_bytes_come(stream, records, indent, is_ascii):
    data = json.dumps(records, indent=indent, ensure_ascii=is_ascii).encode()
    assert shown(read_array(stream(b" \n" + data + b"\n"), "f")) == records


@given(st.lists(st.lists(st.text(max_size=20), min_size=2, max_size=2)))
@pytest.mark.parametrize(("name", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_tables_are_read_back(name, delimiter, rows):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerows([["a", "b"], *rows])
    assert shown(read(name, text.getvalue().encode())) == [dict(zip("ab", row, strict=True)) for row in rows]


FAULTS = {
    "no JSON": (
        b'{"prompt": "a"',
        "This is not JSON: the end of the text stands where a comma or } has to follow, at column 15.",
    ),
    "a list": (b"[1]", "A record is a JSON object, but this is a list."),
    "a text": (b'"hello"', "A record is a JSON object, but this is a text."),
    "null": (b"null", "A record is a JSON object, but this is null."),
    "a bad byte": (b'{"prompt": "\xff"}', "This is not UTF-8 text: byte 0xff at offset 12 of the line."),
    "half a character": (
        rb'{"prompt": "\ud83d"}',
        r"This is not JSON: the string '\ud83d' has half a surrogate pair, at column 12.",
    ),
    "NaN": (b'{"seed": NaN}', "This is not JSON: 'NaN' is no JSON value, at column 10."),
    "too large a number": (
        b'{"seed": 1e999}',
        "This is not JSON: the number '1e999' is too large for a double, at column 10.",
    ),
    "endless digits": (
        b'{"seed": ' + b"1" * 5000 + b"}",
        f"This is not JSON: the number '{'1' * 39}…' has more than 4300 digits when written out",
    ),
    "a key twice": (
        b'{"n": 1, "n": 2}',
        "This is not JSON: the key 'n' stands twice in one object, at column 10.",
    ),
    "deep nesting": (
        b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        "This is not JSON: lists and objects are nested more than 100 deep, at column 106.",
    ),
    "two values": (
        b'{"n": 1} {"n": 2}',
        "This is not JSON: '{' stands behind the end of the document, at column 10.",
    ),
    "too long": (b'{"prompt": "' + b"x" * MAX_BYTES + b'"}', "The record is longer than the limit of 16 MiB"),
}


def test_a_faulty_record_is_a_failure_and_those_after_it_are_read():
    for fault, (line, message) in FAULTS.items():
        (first, failure), (second, good) = read("jsonl", line + b'\n\n{"prompt": "b"}\n')
        assert (first, second, good) == (1, 3, {"prompt": "b"}), fault
        assert failure.type == "InputError", fault
        assert failure.message.startswith(message), fault
        if fault not in ("no JSON", "two values"):  # which an array cannot tell from its own end
            (found, *rest) = shown(read("json", b"[" + line + b',\n{"prompt": "b"}]'))
            assert found.startswith(message), fault
            assert rest == [{"prompt": "b"}], fault

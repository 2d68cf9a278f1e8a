"""Reading records: what each format means, and that a fault stays with its record."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gencli.batch.formats.jsonarray import read_array
from tests.batch.formats.test_formats import VALUES, read, shown

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

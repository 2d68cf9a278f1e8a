"""A document is read as RFC 8259 writes it; whatever else readers let pass is refused with its place."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gencli.json_text import parse_json
from tests.slow.test_json_reader import JSON


@given(JSON, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_what_json_writes_is_read_as_json_reads_it(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert repr(parse_json(text)) == repr(json.loads(text))

"""YAML is another form of the JSON that commands write: it reads back as the same values, everywhere."""

import json

import yaml
from hypothesis import given
from hypothesis import strategies as st

from gencli.json_text import to_json
from gencli.yaml_text import to_yaml

TEXTS = (
    st.text(st.sampled_from(list("a1 -:#\n\t\r\"'|>&*!%@`{}[],?.eo~\x85\u2028\ufeff\x00\x7f\U0001f600")))
    | st.text()
)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_any_value_reads_back(value):
    text = to_yaml(value)
    assert text.endswith("\n")
    assert yaml.safe_load(text) == json.loads(to_json(value))

    assert yaml.safe_load(to_yaml(value, encoding="ascii").encode("ascii")) == json.loads(to_json(value))

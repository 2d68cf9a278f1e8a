"""A document is read as RFC 8259 writes it; whatever else readers let pass is refused with its place."""

from hypothesis import given
from hypothesis import strategies as st

from gencli.json_text import parse_json
from gencli.structured.schema_errors import compact

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner)
    ),
    max_leaves=20,
)


@given(JSON)
def test_compact_text_reads_back_as_the_same_value(value):
    assert repr(parse_json(compact(value))) == repr(value)

"""Rows choose keys of watermarks by name; no row names a file, and no result has a path or a key."""

import pytest

from tests.batch.test_named_keys import keys
from tests.slow.batch.test_named_keys import check_detection


@pytest.mark.parametrize("kind", ["synthid", "gumbel"])
def test_each_row_is_found_with_its_own_key_of_other_watermarks(kind, bench, keys):
    check_detection(kind, bench, keys)

"""Watermark keys of rows."""

import pytest

from tests.batch.test_rows import keys
from tests.slow.batch.test_rows import check_detection


@pytest.mark.parametrize("kind", ["synthid", "gumbel"])
def test_each_row_is_found_with_its_own_key_of_other_watermarks(kind, bench, keys):
    check_detection(kind, bench, keys)

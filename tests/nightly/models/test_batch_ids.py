"""In a batch that shares beginnings, every row has the token ids that it has alone."""

from __future__ import annotations

import pytest

from tests.slow.models.test_batch_ids import check_ids


@pytest.mark.parametrize("kind", ["tiny", "llama", "gpt2"])
def test_ids_of_many_rows_are_those_of_the_row_alone(kind: str) -> None:
    check_ids(kind, 200)

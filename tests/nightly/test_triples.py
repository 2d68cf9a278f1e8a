"""Three options at once: each run ends with a code of the table and, where it fails, with a reason."""

import pytest

from tests.slow.test_triples import check, folder
from tests.test_triples import GROUPS, triples


@pytest.mark.parametrize("group", range(GROUPS))
def test_no_triple_ends_in_a_fault(group, folder, monkeypatch):
    check(triples()[group::GROUPS], folder, monkeypatch)

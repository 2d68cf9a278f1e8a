"""Any two options of a run act together, or are refused by name; docs/reference/pairs.md says which."""

import pytest

from tests.helpers.option_walk import KEYS
from tests.slow.test_pairs import differences, shared_walk


@pytest.mark.parametrize("key", KEYS)
def test_the_option_acts_beside_others_or_is_refused_by_name(key, shared_walk, monkeypatch):
    pairs = [(key, other) for other in KEYS[KEYS.index(key) + 1 :]]
    assert differences(pairs, shared_walk, monkeypatch) == {}, "run scripts/pair_table.py"

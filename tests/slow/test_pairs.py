"""Any two options of a run act together, or are refused by name; docs/reference/pairs.md says which."""

from itertools import combinations

import pytest

from tests.helpers.commit import commit, drawn
from tests.helpers.option_walk import KEYS, OptionWalk
from tests.test_pairs import DOCUMENTED


@pytest.fixture(scope="module")
def shared_walk(tmp_path_factory):
    """One for all options: what an option does alone is run once."""
    return OptionWalk(tmp_path_factory.mktemp("walk"))


def differences(pairs, walk, monkeypatch):
    """The pairs that do something else than the page says."""
    monkeypatch.chdir(walk.folder)
    verdicts = {pair: walk.verdict(pair) for pair in pairs}
    silent = {pair: verdict for pair, verdict in verdicts.items() if verdict.kind == "silent"}
    told = {pair: verdict for pair, verdict in verdicts.items() if verdict.kind != "acting"}
    expected = {pair: DOCUMENTED[pair] for pair in pairs if pair in DOCUMENTED}
    return silent or {pair: told.get(pair) for pair, _ in told.items() ^ expected.items()}


@pytest.mark.parametrize("part", range(4))
def test_pairs_that_the_page_lists_do_what_it_says(part, shared_walk, monkeypatch):
    pairs = [*DOCUMENTED][part::4]
    assert differences(pairs, shared_walk, monkeypatch) == {}, "run scripts/pair_table.py"


@pytest.mark.parametrize("part", range(4))
def test_a_twentieth_of_the_other_pairs_acts_together(part, shared_walk, monkeypatch):
    others = [pair for pair in combinations(KEYS, 2) if pair not in DOCUMENTED and drawn(*pair) % 20 == 0]
    assert differences(others[part::4], shared_walk, monkeypatch) == {}, (
        f"run scripts/pair_table.py; GENCLI_COMMIT={commit()} repeats the choice"
    )

"""Any two options of a run act together, or are refused by name; docs/pairs.md says which."""

import runpy
from itertools import combinations

import pytest

from tests.cli.conftest import ROOT
from tests.helpers.commit import commit, drawn
from tests.helpers.option_walk import KEYS, OptionWalk
from tests.helpers.pairs import ENDING, FEATURES, HIDING, IDLE, LOUD, NEUTRAL

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "pair_table.py"))
PAGE = SCRIPT["PAGE"].read_text(encoding="utf-8")
DOCUMENTED = SCRIPT["documented"](PAGE)


def test_every_option_is_in_the_walk():
    assert set(FEATURES) == set(KEYS)
    assert set(NEUTRAL) | set(HIDING) | ENDING <= set(KEYS)
    assert {key for pair in (*IDLE, *LOUD) for key in pair} <= set(KEYS)
    reasons = (*NEUTRAL.values(), *HIDING.values(), *IDLE.values(), *LOUD.values())
    assert all(text.endswith(".") for text in reasons)


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


@pytest.mark.parametrize("key", KEYS)
def test_the_option_acts_beside_others_or_is_refused_by_name(key, shared_walk, monkeypatch):
    pairs = [(key, other) for other in KEYS[KEYS.index(key) + 1 :]]
    assert differences(pairs, shared_walk, monkeypatch) == {}, "run scripts/pair_table.py"


def test_the_page_has_the_options_and_stages_that_there_are():
    assert SCRIPT["page"](DOCUMENTED) == PAGE, "run scripts/pair_table.py"

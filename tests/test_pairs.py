"""Any two options of a run act together, or are refused by name; docs/pairs.md says which."""

import runpy

import pytest

from tests.cli.conftest import ROOT
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


def repeated(key):
    """Those pairs of the option that are listed, and every fourth; scripts/pair_table.py walks all."""
    pairs = [(key, other) for other in KEYS[KEYS.index(key) + 1 :]]
    return [pair for i, pair in enumerate(pairs) if pair in DOCUMENTED or i % 4 == 0]


@pytest.mark.parametrize("key", KEYS)
def test_the_option_acts_beside_others_or_is_refused_by_name(key, shared_walk, monkeypatch):
    monkeypatch.chdir(shared_walk.folder)
    verdicts = {pair: shared_walk.verdict(pair) for pair in repeated(key)}
    assert {pair: verdict.said for pair, verdict in verdicts.items() if verdict.kind == "silent"} == {}
    told = {pair: verdict for pair, verdict in verdicts.items() if verdict.kind != "acting"}
    assert told == {pair: verdict for pair, verdict in DOCUMENTED.items() if pair[0] == key}, (
        "run scripts/pair_table.py"
    )


def test_no_option_is_left_out_of_what_is_repeated():
    pairs = [pair for key in KEYS for pair in repeated(key)]
    assert min(sum(key in pair for pair in pairs) for key in KEYS) >= 8


def test_the_page_has_the_options_and_stages_that_there_are():
    assert SCRIPT["page"](DOCUMENTED) == PAGE, "run scripts/pair_table.py"

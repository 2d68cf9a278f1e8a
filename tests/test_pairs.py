"""Any two options of a run act together, or are refused by name; docs/pairs.md says which."""

import runpy

import pytest

from tests.cli.conftest import ROOT
from tests.option_walk import KEYS, OptionWalk
from tests.pairs import ENDING, FEATURES, HIDING, NEUTRAL

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "pair_table.py"))
PAGE = SCRIPT["PAGE"].read_text(encoding="utf-8")
DOCUMENTED = SCRIPT["documented"](PAGE)


def test_every_option_is_in_the_walk():
    assert set(FEATURES) == set(KEYS)
    assert set(NEUTRAL) | set(HIDING) | ENDING <= set(KEYS)
    assert all(text.endswith(".") for text in (*NEUTRAL.values(), *HIDING.values()))


@pytest.fixture
def walk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return OptionWalk(tmp_path)


@pytest.mark.parametrize("key", KEYS)
def test_the_option_acts_beside_every_other_or_is_refused_by_name(key, walk):
    verdicts = {(key, other): verdict for other, verdict in walk.verdicts(key).items()}
    assert {pair: verdict.said for pair, verdict in verdicts.items() if verdict.kind == "silent"} == {}
    told = {pair: verdict for pair, verdict in verdicts.items() if verdict.kind != "acting"}
    assert told == {pair: verdict for pair, verdict in DOCUMENTED.items() if pair[0] == key}, (
        "run scripts/pair_table.py"
    )


def test_the_page_has_the_options_and_stages_that_there_are():
    assert SCRIPT["page"](DOCUMENTED) == PAGE, "run scripts/pair_table.py"

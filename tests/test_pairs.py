"""Any two options of a run act together, or are refused by name; docs/reference/pairs.md says which."""

import runpy

from tests.cli.conftest import ROOT
from tests.helpers.option_walk import KEYS
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


def test_the_page_has_the_options_and_stages_that_there_are():
    assert SCRIPT["page"](DOCUMENTED) == PAGE, "run scripts/pair_table.py"

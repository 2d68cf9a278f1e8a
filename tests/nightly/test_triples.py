"""Three options at once: each run ends with a code of the table and, where it fails, with a reason."""

import re

import pytest

from tests.helpers.commit import commit, drawn
from tests.helpers.option_walk import OptionWalk, command_line, merged, pair_setups, run_line
from tests.test_triples import GROUPS, rank, triples

CODES = {0, 2, 3, 4, 5, 6, 7}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return OptionWalk(tmp_path_factory.mktemp("triples")).folder


def line(triple):
    """The triple's arguments, with what the first two need."""
    setups = pair_setups(triple[:2])
    setup = setups[rank(triple)[0] % len(setups)]
    arguments = merged(1, triple, setup)
    if "--max-tokens" not in {flag for key in triple for flag in (f"--{key.replace('_', '-')}",)}:
        arguments["--max-tokens"] = ("6",)
    return command_line(arguments)


def check(some, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for triple in some:
        code, out, err = run_line(line(triple))
        case = f"{triple}; GENCLI_COMMIT={commit()} repeats the choice"
        assert code in CODES, case
        assert not re.search(r"fault of gencli|Traceback|Unexpected", err + out), (case, err)
        assert code in (0, 7) or "Error: " in err, (case, code, err)


@pytest.mark.parametrize("group", range(GROUPS))
def test_no_triple_ends_in_a_fault(group, folder, monkeypatch):
    check(triples()[group::GROUPS], folder, monkeypatch)

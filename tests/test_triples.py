"""Three options at once: each run ends with a code of the table and, where it fails, with a reason."""

import hashlib
import re
from itertools import combinations

import pytest

from tests.helpers.commit import commit, drawn
from tests.helpers.option_walk import KEYS, OptionWalk, command_line, merged, pair_setups, run_line

NUMBER, GROUPS = 2000, 20
CODES = {0, 2, 3, 4, 5, 6, 7}
# --debug lets tracebacks through on purpose, and --format json with --output has its own walk.
TRIED = [key for key in KEYS if key != "debug"]


def rank(triple):
    return hashlib.blake2b(" ".join(triple).encode(), digest_size=8).digest()


TRIPLES = sorted(combinations(TRIED, 3), key=rank)[:NUMBER]


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


def check(triples, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for triple in triples:
        code, out, err = run_line(line(triple))
        case = f"{triple}; GENCLI_COMMIT={commit()} repeats the choice"
        assert code in CODES, case
        assert not re.search(r"fault of gencli|Traceback|Unexpected", err + out), (case, err)
        assert code in (0, 7) or "Error: " in err, (case, code, err)


def test_a_few_triples_end_in_no_fault(folder, monkeypatch):
    check(TRIPLES[drawn() % GROUPS :: GROUPS], folder, monkeypatch)


@pytest.mark.parametrize("group", range(GROUPS))
def test_no_triple_ends_in_a_fault(group, folder, monkeypatch):
    check(TRIPLES[group::GROUPS], folder, monkeypatch)


def test_every_option_is_in_some_triple():
    assert {key for triple in TRIPLES for key in triple} == set(TRIED)

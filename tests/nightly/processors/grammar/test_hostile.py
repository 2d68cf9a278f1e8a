"""Hostile grammars: each compiles or is refused by name, and the process goes on."""

import pytest

from tests.slow.processors.grammar.test_hostile import CASES, check, compilers

pytestmark = pytest.mark.usefixtures("own_children")  # it bounds their memory and stack


@pytest.mark.parametrize(("backend", "kind"), sorted({case[:2] for case in CASES}))
def test_every_hostile_grammar_compiles_or_is_refused_by_name(compilers, backend, kind, capfd):
    for case in CASES:
        if case[:2] == (backend, kind):
            check(compilers, *case)
            assert capfd.readouterr().err == "", case

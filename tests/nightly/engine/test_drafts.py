"""Drafts, and text that a grammar or a stage forces: the same tokens in fewer passes."""

from itertools import product

from gencli.core.request import Limits
from processors.catalog import BUILTIN
from processors.testing.examples import EXAMPLES
from tests.engine.harness import request
from tests.engine.test_drafts import BACKENDS, fits, off, record, tokens_of
from tests.slow.engine.test_drafts import (
    CHAINS,
    FORCING_CHAINS,
    GRAMMARS,
    check,
    check_company,
    check_jumps,
    check_near_the_limit,
)


def test_text_with_drafts_is_text_without_whatever_the_values_of_a_stage():
    for spec in BUILTIN:
        for params in filter(fits, EXAMPLES[spec.params][1:]):
            check(spec.name, params)


def test_jumps_change_no_token_of_any_grammar_and_chain():
    for backend, grammar, chain in product(BACKENDS, GRAMMARS, CHAINS):
        check_jumps(backend, grammar, chain)


def test_jumps_change_no_token_near_each_limit():
    for max_tokens in (1, 2, 12, 40, 60, 75):
        check_near_the_limit(max_tokens)


def test_samples_neighbours_and_turns_of_a_session_jump_for_themselves():
    rows = [record("n", n=4), record("one", seed=3), record("none", jump="off"), request("free", key="free")]
    ids, ends, _ = tokens_of(rows, max_batch=5)
    alone = [tokens_of([one]) for one in rows]
    assert ids == {key: ids for found in alone for key, ids in found[0].items()}
    assert ends == {key: end for found in alone for key, end in found[1].items()}
    turns = [record(f"t{i}", seed=i, session="s") for i in range(3)]
    assert tokens_of(turns, max_batch=1)[:2] == tokens_of(off(turns), max_batch=1)[:2]


def test_a_marker_is_waited_for():
    rows = [record(f"r{i}", seed=i, grammar={"after": "e"}, limits=Limits(400)) for i in range(4)]
    assert tokens_of(rows)[:2] == tokens_of(off(rows))[:2]


def test_a_forced_text_in_company_and_with_drafts_is_that_of_a_request_alone():
    for case in product(FORCING_CHAINS, ("auto", "off")):
        check_company(*case)

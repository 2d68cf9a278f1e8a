"""Grammars beside other stages, conditions of stages, and documents at the limit of tokens."""

from dataclasses import replace
from itertools import product

from gencli.core.request import Stops
from tests.engine.harness import TOKENIZER, Scripted
from tests.engine.test_drafts import BACKENDS as NAMES_OF_BACKENDS
from tests.slow.engine.test_grammar import BACKENDS as EACH_BACKEND
from tests.slow.engine.test_grammar import (
    CHAINS,
    CONDITIONS,
    CUTS,
    PATTERNS,
    PENALTIES,
    check_by_hand,
    check_company,
    check_ends,
    check_stages,
    check_strings,
    constrained,
    end_of,
    lists,
    outcome,
    strings,
)


def test_the_text_of_each_chain_and_condition_is_that_of_a_loop_by_hand():
    for chain, condition in product(CHAINS, CONDITIONS):
        check_by_hand(chain, condition)


def test_every_stage_acts_in_its_place_only_and_takes_drafts_there():
    for number in (0, 1):
        check_stages(number)


BESIDE = (*PENALTIES, *CUTS, "min_tokens=90", "ignore_eos=true", "temperature=2 | frequency=1 | min_p=0.01")


@EACH_BACKEND
def test_drafts_change_nothing_whatever_stands_beside_the_grammar(backend):
    for chain in BESIDE:
        stops = Stops(strings=("}", "a"), ids=(ord("!"),))
        one = constrained(backend, chain=chain, stops=stops, jump="off")
        plain = end_of(one)
        drafter = Scripted({one.prompt_ids: tuple(TOKENIZER.encode(plain.text))})
        assert outcome(end_of(one, drafter=drafter)) == outcome(plain), chain
        assert outcome(end_of(replace(one, jump="auto"))) == outcome(plain), chain
        assert drafter.proposed > 10, chain


LIMITS = (24, 40, 64, 160)


def test_a_document_that_can_be_ended_in_time_is_with_each_back_end():
    for case in product(LIMITS, NAMES_OF_BACKENDS):
        check_ends(*case)


def test_strings_with_each_pattern_are_brought_to_their_end():
    for pattern, backend in product(PATTERNS, NAMES_OF_BACKENDS):
        check_strings(pattern, backend, (16, 17, 20, 40, 60) * 2)


def test_no_way_to_the_end_depends_on_drafts_or_neighbours():
    for max_tokens in LIMITS:
        check_company([lists(seed, max_tokens) for seed in range(5)])
    for pattern in PATTERNS[:2]:
        check_company([strings(seed, pattern, 40) for seed in range(4)])

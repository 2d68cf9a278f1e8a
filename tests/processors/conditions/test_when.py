"""A condition is a value: it round-trips, and says what is wrong with it."""

import re

from processors.chain import Chain, Picks, check_conditions
from processors.errors import ChainError, ParamError
from processors.registry import builtin_registry
from processors.request_values import NO_CONDITION, When
from processors.stages.penalties import BiasParams
from processors.stages.truncation import TopPParams
from tests.helpers.refusal import refusal

PARTS = (
    {"from": 3},
    {"to": 5},
    {"from": 3, "to": 5, "inside": "thinking"},
    {"outside": "thinking"},
    {"inside": ["<a>", "</a>"], "after": "x"},
    {"inside": ["", "</think>"]},
    {"path": "", "after": "</think>"},
    {"path": "/items/*/na~1me"},
)


def test_a_condition_round_trips():
    for parts in PARTS:
        when = When.of(parts)
        assert when.to_mapping() == parts, parts
        chain = Chain.of({"top_p": {"p": 0.9, "when": parts}})
        assert chain.stages == (("top_p", TopPParams(0.9, when=when)),), parts
        assert Chain.parse(str(chain)) == Chain.from_list(chain.to_list()) == chain, parts
        assert hash(Chain.parse(str(chain))) == hash(chain), parts


def test_a_wrong_condition_says_what_is_wrong():
    for parts, message in [
        ({}, "is empty. Give one of from, to"),
        ("thinking", 'is "thinking", but has to be a mapping'),
        ({"form": 3}, "no part 'form'. Did you mean 'from'"),
        ({"from": -1}, "has from -1, but it counts output tokens"),
        ({"from": True}, "has from true"),
        ({"to": 0}, "never holds: it is from 0 to 0"),
        ({"from": 5, "to": 5}, "never holds"),
        ({"inside": "thinking", "outside": ["<think>", "</think>"]}, "inside and outside of the same tags"),
        ({"inside": "sleeping"}, "thinking or a list of two tags"),
        ({"inside": ["a", "a"]}, "the same start and end"),
        ({"inside": ["a", ""]}, "a text that is not empty"),
        ({"after": ""}, "a text that is not empty"),
        ({"from": 10**5000}, "has from a very large number"),
        ({"inside": ["a" * 9999, "b"]}, "has inside .a{70,}"),
        ({"after": "\ud800"}, "no text"),
        ({"path": ["/a"]}, "the path"),
        ({"inside": {"a": 1}}, "thinking or a list of two tags"),
        ({"path": "items"}, "no JSON pointer: 'items' does not begin with a slash"),
        ({"path": 3}, "the path 3"),
    ]:
        assert re.search(
            f"top_p: when .*{message}", refusal(ParamError, Chain.of, {"top_p": {"p": 0.9, "when": parts}})
        ), parts


def test_a_stage_that_promises_something_takes_none():
    for name in [name for name in NO_CONDITION if name in builtin_registry().names()]:
        params = builtin_registry().spec(name).params(when={"from": 1})
        assert re.search(
            f"The stage {name} takes no condition .when.: .*Leave it out",
            refusal(ChainError, check_conditions, Chain(((name, params),)), builtin_registry()),
        ), name


def test_entries_of_a_stage_are_told_apart_by_their_conditions():
    for text, message in [
        ("top_k=1 | top_k=2", "stands twice"),
        ('top_k:k=1,when={"from":2} | top_k:k=3,when={"from":2}', "stands twice"),
        ('top_k=1 | top_p=0.5 | top_k:k=3,when={"from":2}', "stands in two places"),
    ]:
        assert re.search(
            message, refusal(ChainError, check_conditions, Chain.parse(text), builtin_registry())
        ), text


def test_a_text_may_be_named_like_the_field():
    assert Chain.of({"bias": {"when": 1.5}}).get("bias") == BiasParams((("when", 1.5),))


def acting(text, *hold):
    picks = Picks(Chain.parse(text), builtin_registry())
    return " | ".join(str(Chain((picks.stages[key],))).partition(",when")[0] for key in picks.where(hold))


def test_the_last_entry_whose_condition_holds_acts():
    late = 'temperature:temperature=3,when={"from":4}'
    text = f'temperature:temperature=2,when={{"from":2}} | temperature=0.5 | {late}'
    assert acting(text, False, False) == "temperature=0.5"
    assert acting(text, True, False) == "temperature:temperature=2.0"
    assert acting(text, True, True) == "temperature:temperature=3.0"


def test_an_entry_that_is_off_switches_the_stage_off():
    text = 'top_k=5 | top_k:k=0,when={"from":2} | top_p=0.9'
    assert acting(text, True) == "top_p=0.9"
    assert acting(text, False) == "top_k=5 | top_p=0.9"


def test_a_temperature_of_0_leaves_out_what_a_greedy_chain_leaves_out():
    text = 'suppress=[1] | top_k=5 | temperature=0.5 | temperature:temperature=0,when={"from":2} | top_p=0.9'
    assert acting(text, True) == "suppress=[1] | temperature:temperature=0.0"
    assert acting(text, False) == "suppress=[1] | top_k=5 | temperature=0.5 | top_p=0.9"


def test_a_chain_is_greedy_if_it_is_so_everywhere():
    for text, is_greedy in [
        ('temperature=0 | temperature:temperature=1,when={"from":2}', False),
        ('temperature=0 | temperature:temperature=0,when={"from":2}', True),
        ('temperature:temperature=0,when={"from":2}', False),
        ("temperature=0", True),
    ]:
        assert Chain.parse(text).is_greedy == is_greedy, text
        assert (Chain.parse(text).resolved()[1] == "greedy") == is_greedy, text

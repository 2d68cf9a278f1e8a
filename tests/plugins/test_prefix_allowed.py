"""A function in Python says which ids may come next."""

from dataclasses import replace

import pytest

from gencli import LLM
from gencli.errors import PluginError
from gencli.plugins.plugin_registry import make_registry
from gencli.plugins.prefix_allowed import prefix_allowed
from processors.chain import Chain
from processors.testing import check_stage
from tests.engine.harness import Scripted, engine, generate, request

DIGITS = list(b"0123456789")


def alternating(output):
    """Three digits, then letters as they come, and so on."""
    return DIGITS if len(output) % 6 < 3 else None


def asked(registry, chain="prefix_allowed:enabled=true", key="k"):
    return replace(request("the cat", key=key, max_tokens=24), chain=Chain.parse(chain, registry))


def test_only_the_ids_of_the_function_come_next_with_drafts_and_without():
    registry = make_registry([prefix_allowed(alternating)])
    one = asked(registry)
    on = engine(registry=registry)
    on.submit(one)
    ids = [token for event in on.run() if hasattr(event, "ids") for token in event.ids]
    assert all(token in DIGITS for place, token in enumerate(ids) if place % 6 < 3)
    assert not all(token in DIGITS for token in ids)
    text = generate([one], on=engine(registry=registry))[one.id, 0].text
    drafter = Scripted({one.prompt_ids: tuple(ids)})
    assert generate([one], on=engine(registry=registry, drafter=drafter))[one.id, 0].text == text
    assert drafter.proposed

    failed = [one for one in check_stage(prefix_allowed(alternating)) if not one.passed]
    assert failed == []


def test_a_function_that_fails_fails_its_text_alone():
    for function, message in [
        (lambda output: [], "No token is left"),
        (lambda output: ["a"], "the function returned 'a', but has to return token ids"),
        (lambda output: 1 / 0, "ZeroDivisionError"),
    ]:
        registry = make_registry([prefix_allowed(function)])
        ends = generate([asked(registry), request("other", max_tokens=5)], on=engine(registry=registry))
        assert message in ends["k", 0].message, function
        assert ends["other", 0].reason in ("eos", "length"), function


def test_a_library_user_gives_it_to_the_model():
    with LLM("fake", plugins=[prefix_allowed(lambda output: DIGITS, name="digits")]) as llm:
        assert llm.generate("a", stages={"digits": True}, max_tokens=6, seed=1).text.isdigit()
        assert not llm.generate("a", max_tokens=6, seed=1).text.isdigit()

    with pytest.raises(PluginError, match="have the name 'prefix_allowed'"):
        make_registry([prefix_allowed(alternating), prefix_allowed(alternating)])
    with pytest.raises(PluginError, match="small letters"):
        make_registry([prefix_allowed(alternating, name="Not a name")])

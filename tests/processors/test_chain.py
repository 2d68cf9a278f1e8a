"""A chain is a value: it parses, prints, compares, hashes and round-trips."""

import pytest

from processors.chain import Chain, parse_stage
from processors.errors import ChainError, ParamError, UnknownStage
from processors.stages.scale import TemperatureParams
from processors.stages.truncation import TopKParams

TEXT = 'ban=["a | b", "c:d=1"] | repetition:penalty=1.1,window=64 | temperature=0.7 | top_k:k=40,ties="keep"'


def test_text_round_trips():
    chain = Chain.parse(TEXT)
    assert str(chain) == TEXT
    assert Chain.parse(str(chain)) == chain
    assert hash(Chain.parse(TEXT)) == hash(chain)


def test_a_list_round_trips():
    chain = Chain.parse(TEXT)
    assert Chain.from_list(chain.to_list()) == chain
    assert chain.to_list()[2] == {"temperature": {"temperature": 0.7}}


def test_named_values_take_the_default_order():
    chain = Chain.of({"top_p": 0.9, "temperature": 0.5, "bias": {42: 1.5}, "top_k": {"k": 3}})
    assert [name for name, _ in chain] == ["bias", "temperature", "top_k", "top_p"]


def test_an_override_keeps_the_place_and_an_addition_takes_its_own():
    chain = Chain.parse("top_k=5 | temperature=0.7")
    assert str(chain.with_stage("top_k", k=7)) == "top_k=7 | temperature=0.7"
    assert str(Chain.parse("temperature=2 | top_p=0.9").with_stage("min_p", p=0.1)) == (
        "temperature=2.0 | min_p=0.1 | top_p=0.9"
    )


def test_greedy_keeps_masks_and_adjustments_only():
    chain = Chain.parse("suppress=[3] | presence=0.5 | temperature=0 | min_p=0.1 | top_k=0")
    assert chain.is_greedy
    resolved, draw = chain.resolved("multinomial")
    assert (str(resolved), draw) == ("suppress=[3] | presence=0.5", "greedy")
    assert Chain.parse("temperature=0.5 | top_k=0").resolved() == (Chain.parse("temperature=0.5"), "gumbel")


WRONG = [
    ("top_q=1", UnknownStage, "no stage 'top_q'. Did you mean 'top_a', 'top_h', 'top_k' or 'top_p'"),
    ("top_k:q=1", ParamError, "'top_k' has no parameter 'q'"),
    ("top_k:1", ChainError, "'1' is not of the form key=value"),
    ("temperature=-1", ParamError, "temperature is -1"),
]


def test_a_wrong_text_says_what_is_wrong():
    for text, error, message in WRONG:
        with pytest.raises(error, match=message):
            pytest.fail(f"{Chain.parse(text)} is taken")


def test_a_stage_parses_from_each_of_its_forms():
    assert parse_stage("top_k") == ("top_k", TopKParams())
    assert parse_stage("top_k=4") == ("top_k", TopKParams(k=4))
    assert parse_stage("top_k:k=4,ties=keep") == ("top_k", TopKParams(k=4, ties="keep"))
    assert parse_stage(" temperature = 2 ") == ("temperature", TemperatureParams(temperature=2.0))


def test_a_chain_prints_as_its_text_in_one_short_line():
    chain = Chain.parse('ban=["a\\u202e\\n<b>"] | top_p=0.9')
    assert repr(chain) == r"""Chain('ban=["a\u202e\\n<b>"] | top_p=0.9')"""
    assert len(repr(Chain.parse(f'ban=["{"x" * 900}"]'))) < 220


def test_a_notebook_shows_a_chain_as_a_table_of_text_alone():
    html = Chain.parse('ban=["<script>\\u202e"] | top_k:k=40,ties=keep')._repr_html_()
    assert "<tr><td>1</td><td>ban</td><td>[&quot;&lt;script&gt;\\u202e&quot;]</td></tr>" in html
    assert "<tr><td>2</td><td>top_k</td><td>k=40,ties=" in html

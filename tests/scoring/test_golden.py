"""Scores against values known beforehand: a plain forward, analytic models, generation itself."""

import math
from itertools import pairwise

import pytest

from gencli import LLM
from gencli.engine.engine import Engine
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from gencli.scoring.scorer import PairItem, Scorer, TextItem, make_convention
from gencli.text.tokenizer import ByteTokenizer

TEXT = "Once upon a time, a kind fox named Clover lived in a house by the river."


TOKENIZER = ByteTokenizer()


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny") as made:
        yield made


def scorer(runner, convention="lm-eval"):
    how = make_convention(convention, runner.spec, TOKENIZER, window=None, stride=None)
    return Scorer(Engine(runner, TOKENIZER), runner.spec, TOKENIZER, how)


def test_the_perplexity_of_a_uniform_model_is_the_size_of_its_vocabulary():
    runner = FakeRunner(scale=0.0, eos_ids=TOKENIZER.eos_ids)
    (score,) = scorer(runner).scores([TextItem(TEXT)])
    assert score.totals.perplexity == pytest.approx(runner.spec.vocab_size, rel=1e-6)
    assert score.totals.perplexity_error == pytest.approx(0, abs=1e-4)
    bits = math.log2(runner.spec.vocab_size) * len(TOKENIZER.encode(TEXT, special=False)) / len(TEXT)
    assert score.totals.bits_per_byte == pytest.approx(bits, rel=1e-6)


def test_a_bigram_model_has_the_value_of_its_table():
    runner = FakeRunner(eos_ids=TOKENIZER.eos_ids)
    table = runner.table.double().log_softmax(-1)
    ids = TOKENIZER.encode(TEXT, special=False)
    value = sum(float(table[one, other]) for one, other in pairwise(ids))
    (score,) = scorer(runner, "strided").scores([TextItem(TEXT)])
    assert score.totals.tokens == len(ids) - 1
    assert score.totals.logprob == pytest.approx(value, abs=1e-4)
    (pair,) = scorer(runner).scores([PairItem("ab", "cd")])
    assert pair.logprob == pytest.approx(float(table[98, 99] + table[99, 100]), abs=1e-5)


def test_a_neutral_chain_gives_the_scores_of_the_model(llm):
    choices = {"context": "Brindle is", "choices": [" a town.", " Biscuit."]}
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}
    for options in ({}, {"convention": "strided", "window": 12, "stride": 5}, {"window": 6}):
        items = [TEXT, ("Once upon a", " time"), chat]
        for raw, processed in zip(
            llm.score(items, **options), llm.score(items, mode="processed", **options), strict=True
        ):
            assert processed.mode == "processed"
            mine = [one.chosen.processed for one in processed.entries]
            assert mine == pytest.approx([one.chosen.logprob for one in raw.entries], abs=1e-5)
            assert processed.totals.logprob == pytest.approx(raw.totals.logprob, abs=1e-4)
    raw, processed = (llm.score(choices, mode=mode) for mode in ("raw", "processed"))
    assert processed.best == raw.best
    assert processed.unconditional == pytest.approx(raw.unconditional, abs=1e-5)


def test_banned_tokens_leave_no_sum_but_are_counted(llm):
    score = llm.score(("Once upon a time", ", a fox"), mode="processed", ban=[" fox"])
    totals = score.totals
    assert (score.logprob, score.per_token, totals.perplexity, totals.bits_per_byte) == (None,) * 4
    assert totals.banned == 1
    assert [one.chosen.banned_by for one in score.entries if one.chosen.banned_by] == ["ban"]
    assert totals.tokens == len(score.entries) - 1
    assert not score.is_greedy
    both = {"context": "Once upon a time", "choices": [", a fox", ", a cat"]}
    choices = llm.score(both, mode="processed", ban=[" fox"])
    assert choices.best["sum"] == 1
    assert choices.probabilities == (0.0, 1.0)
    none = llm.score(both, mode="processed", choice=["one", "two"])
    assert (set(none.best.values()), none.probabilities) == ({None}, (None, None))


def test_a_grammar_is_for_one_window_and_a_chain_for_the_mode_processed(llm):
    with pytest.raises(UsageError, match="several windows"):
        llm.score(TEXT, mode="processed", choice=["one"], window=8)
    with pytest.raises(UsageError, match="`top_k` has no part .* `mode` = processed"):
        llm.score(TEXT, top_k=3)
    with pytest.raises(UsageError, match="`n` has no part"):
        llm.score(TEXT, mode="processed", n=3)
    with pytest.raises(UsageError, match="`max_tokens` is 2"):
        llm.score(TEXT, mode="processed", max_tokens=2)


def test_an_error_in_the_middle_leaves_the_engine_as_it_was(llm):
    with pytest.raises(UsageError, match="tokens"):
        llm.score([TEXT, ("a", "fox " * 2000), TEXT])
    assert not llm.engine.has_work
    assert llm.score(TEXT).totals.tokens > 10

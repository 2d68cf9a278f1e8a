"""Scores of texts, pairs and choices beside plain passes, analytic models and published conventions."""

import math
from itertools import pairwise

import pytest
import torch

from gencli import LLM
from gencli.core.request import Feed, StepPlan
from gencli.engine.engine import Engine
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from gencli.scoring.scorer import PairItem, TextItem, TextScorer, make_convention, read_item
from gencli.scoring.text_scores import prefix_id
from gencli.text.tokenizer import ByteTokenizer

TEXT = "Once upon a time, a kind fox named Clover lived in a house by the river. One day she found a mirror."
TOKENIZER = ByteTokenizer()
CHOICES = (" a town.", " a fox and a bird.", " Biscuit.")


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def runner():
    """The runner of a second model, whose lanes no engine uses."""
    return LLM("tiny")._loaded.runner


def logprobs(runner, ids):
    """Log-probability [T - 1] float64 of each token after the first, from one plain pass."""
    runner.release(0)
    logits = runner.forward(StepPlan((Feed(0, 0, tuple(ids), len(ids)),)))
    runner.release(0)
    table = logits[:-1].double().log_softmax(-1)
    return table.gather(1, torch.tensor(ids[1:])[:, None]).squeeze(1)


def test_a_text_has_the_sum_of_one_pass_behind_the_prefix_token(llm, runner):
    ids = llm.tokenizer.encode(TEXT, special=False)
    plain = logprobs(runner, [prefix_id(llm.tokenizer, ()), *ids])
    score = llm.score(TEXT)
    assert [one.chosen.id for one in score.entries] == ids
    for entry, value in zip(score.entries, plain.tolist(), strict=True):
        assert entry.chosen.logprob == pytest.approx(value, abs=1e-5)
    totals = score.totals
    assert totals.perplexity == pytest.approx(math.exp(-plain.mean()), rel=1e-5)
    total = float(plain.sum())
    assert totals.bits_per_byte == pytest.approx(-total / len(TEXT.encode()) / math.log(2), rel=1e-5)
    assert totals.word_perplexity == pytest.approx(math.exp(-total / len(TEXT.split())), rel=1e-5)
    error = math.exp(-plain.mean()) * plain.std(correction=1) / math.sqrt(len(ids))
    assert totals.perplexity_error == pytest.approx(float(error), rel=1e-4)


def test_a_window_as_long_as_the_text_is_one_pass(llm):
    count = len(llm.tokenizer.encode(TEXT, special=False))
    whole, long = llm.score(TEXT), llm.score(TEXT, window=count)
    assert long.totals.logprob == pytest.approx(whole.totals.logprob, abs=1e-4)
    short = llm.score(TEXT, window=8)
    assert short.totals.tokens == count
    assert short.totals.logprob != pytest.approx(whole.totals.logprob, abs=1e-2)


def test_the_strided_convention_is_the_loop_of_the_transformers_page(llm, runner):
    ids, window, stride = llm.tokenizer.encode(TEXT), 12, 5
    total, count, done = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        values = logprobs(runner, ids[begin:end])  # of the tokens begin + 1 to end
        new = end - max(done, begin + 1)
        total, count, done = total + float(values[len(values) - new :].sum()), count + new, end
        if end == len(ids):
            break
    score = llm.score(TEXT, convention="strided", window=window, stride=stride)
    assert score.totals.tokens == count == len(ids) - 1
    assert score.totals.logprob == pytest.approx(total, abs=1e-4)


def test_the_llama_convention_scores_the_second_half_of_each_window(llm, runner):
    ids, window = llm.tokenizer.encode(TEXT), 10
    has_bos = ids[0] == llm.tokenizer.bos_id
    values = []
    for begin in range(0, len(ids) - window + 1, window):
        part = ids[begin : begin + window]
        part = [llm.tokenizer.bos_id, *part[1:]] if has_bos else part
        values += logprobs(runner, part)[window // 2 :].tolist()
    score = llm.score(TEXT, convention="llama", window=window)
    nlls = -torch.tensor(values, dtype=torch.float64)
    perplexity = float(nlls.mean().exp())
    error = perplexity * math.sqrt(float((nlls**2).mean() - nlls.mean() ** 2) / (len(nlls) - 1))
    assert score.totals.tokens == len(values)
    assert score.totals.perplexity == pytest.approx(perplexity, rel=1e-5)
    assert score.totals.perplexity_error == pytest.approx(error, rel=1e-4)
    with pytest.raises(UsageError, match="at least two windows"):
        llm.score(TEXT, convention="llama", window=200)


def test_a_pair_is_encoded_together_and_spaces_go_to_the_continuation(llm, runner):
    one, other = llm.score(("Brindle is", " a town")), llm.score(("Brindle is ", "a town"))
    assert one.logprob == pytest.approx(other.logprob, abs=1e-6)
    ids = llm.tokenizer.encode("Brindle is a town")
    start = len(llm.tokenizer.encode("Brindle is"))
    plain = logprobs(runner, ids)[start - 1 :]
    assert one.logprob == pytest.approx(float(plain.sum()), abs=1e-5)
    assert one.tokens == len(ids) - start


def test_choices_are_compared_by_five_measures(llm):
    score = llm.score({"context": "Brindle is", "choices": list(CHOICES)})
    pairs = llm.score([("Brindle is", choice) for choice in CHOICES])
    without = llm.score([("", choice) for choice in CHOICES])
    sums = [one.logprob for one in pairs]
    assert [one.logprob for one in score.choices] == pytest.approx(sums, abs=1e-5)
    assert score.unconditional == pytest.approx([one.logprob for one in without], abs=1e-5)
    measures = {
        "sum": sums,
        "token": [one.logprob / one.tokens for one in pairs],
        "character": [x / len(text) for x, text in zip(sums, CHOICES, strict=True)],
        "byte": [x / len(text.encode()) for x, text in zip(sums, CHOICES, strict=True)],
        "unconditional": [x - y.logprob for x, y in zip(sums, without, strict=True)],
    }
    assert score.best == {name: values.index(max(values)) for name, values in measures.items()}
    assert sum(score.probabilities) == pytest.approx(1)


def test_greedy_text_is_greedy_and_its_numbers_are_those_of_generation(llm, runner):
    made = llm.generate("Once upon a time", temperature=0, max_tokens=8, logprobs=0)
    ids = [*llm.tokenizer.encode("Once upon a time"), *(one.chosen.id for one in made.logprobs)]
    plain = logprobs(runner, ids)[-8:]
    assert [one.chosen.logprob for one in made.logprobs] == pytest.approx(plain.tolist(), abs=1e-5)
    pair = llm.score(("Once upon a time", made.text))
    assert pair.is_greedy
    assert pair.logprob == pytest.approx(sum(one.chosen.logprob for one in made.logprobs), abs=1e-4)
    assert not llm.score(("Once upon a time", " xylophone")).is_greedy


def test_probabilities_of_all_next_tokens_add_up_to_one(llm):
    score = llm.score(("Once upon a", " time"), top=llm._loaded.runner.spec.vocab_size)
    assert sum(math.exp(one.logprob) for one in score.entries[0].top) == pytest.approx(1, abs=1e-5)


def test_a_warm_cache_and_the_order_change_no_score(llm):
    texts = [TEXT, TEXT[:60], TEXT[:60] + " And so it was."]
    first = {text: llm.score(text).totals.logprob for text in texts}
    llm.generate(texts, max_tokens=1, temperature=0)
    for score, text in zip(llm.score(texts[::-1]), texts[::-1], strict=True):
        assert score.totals.logprob == pytest.approx(first[text], abs=1e-5)


def test_the_last_turn_of_a_chat_is_scored(llm):
    def scored(answer):
        asked = {"role": "user", "content": "Who is the mayor of Brindle?"}
        return llm.score({"messages": [asked, {"role": "assistant", "content": answer}]}).logprob

    assert scored("The mayor of Brindle is Otto.") > scored("The mayor of Brindle is Ziggy.") + 1


def test_what_cannot_be_scored_is_refused():
    cases = [
        ("", "empty"),
        ({"text": "a", "choices": ["b"]}, "text and choices"),
        ({"context": "a"}, "has context"),
        ({"context": "a", "choices": "b"}, "list of texts"),
        ({"messages": [{"role": "user", "content": "a"}]}, "end with an answer"),
        (3, "cannot be scored"),
    ]
    for item, said in cases:
        with pytest.raises(UsageError, match=said):
            read_item(item)


def test_windows_and_strides_are_checked(llm):
    for options, said in (
        ({"window": 10**6}, "`window` is 1000000"),
        ({"stride": 4}, "`stride` is for the convention strided"),
        ({"convention": "strided", "window": 8, "stride": 9}, "`stride` is 9"),
    ):
        with pytest.raises(UsageError, match=said):
            llm.score(TEXT, **options)


def scorer_of(runner, convention="lm-eval"):
    how = make_convention(convention, runner.spec, TOKENIZER, window=None, stride=None)
    return TextScorer(Engine(runner, TOKENIZER), runner.spec, TOKENIZER, how)


def test_the_perplexity_of_a_uniform_model_is_the_size_of_its_vocabulary():
    runner = FakeRunner(scale=0.0, eos_ids=TOKENIZER.eos_ids)
    (score,) = scorer_of(runner).scores([TextItem(TEXT)])
    assert score.totals.perplexity == pytest.approx(runner.spec.vocab_size, rel=1e-6)
    assert score.totals.perplexity_error == pytest.approx(0, abs=1e-4)
    bits = math.log2(runner.spec.vocab_size) * len(TOKENIZER.encode(TEXT, special=False)) / len(TEXT)
    assert score.totals.bits_per_byte == pytest.approx(bits, rel=1e-6)


def test_a_bigram_model_has_the_value_of_its_table():
    runner = FakeRunner(eos_ids=TOKENIZER.eos_ids)
    table = runner.table.double().log_softmax(-1)
    ids = TOKENIZER.encode(TEXT, special=False)
    value = sum(float(table[one, other]) for one, other in pairwise(ids))
    (score,) = scorer_of(runner, "strided").scores([TextItem(TEXT)])
    assert score.totals.tokens == len(ids) - 1
    assert score.totals.logprob == pytest.approx(value, abs=1e-4)
    (pair,) = scorer_of(runner).scores([PairItem("ab", "cd")])
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
    with pytest.raises(UsageError, match="`top_k` does not affect these scores") as caught:
        llm.score(TEXT, top_k=3)
    assert caught.value.hint == "Give `mode` = processed."
    with pytest.raises(UsageError, match="`n` does not affect these scores"):
        llm.score(TEXT, mode="processed", n=3)
    with pytest.raises(UsageError, match="`max_tokens` is 2"):
        llm.score(TEXT, mode="processed", max_tokens=2)


def test_an_error_in_the_middle_leaves_the_engine_as_it_was(llm):
    with pytest.raises(UsageError, match="tokens"):
        llm.score([TEXT, ("a", "fox " * 2000), TEXT])
    assert not llm.engine.has_work
    assert llm.score(TEXT).totals.tokens > 10

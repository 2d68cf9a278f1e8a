"""Scores of texts, pairs and choices on the bundled model, beside plain passes and published conventions."""

import math

import pytest
import torch

from gencli import LLM
from gencli.core.request import Feed, StepPlan
from gencli.errors import UsageError
from gencli.scoring.scorer import read_item

TEXT = "Once upon a time, a kind fox named Clover lived in a house by the river. One day she found a mirror."
CHOICES = (" a town.", " a fox and a bird.", " Biscuit.")


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny") as made:
        yield made


def logprobs(llm, ids):
    """Log-probability [T - 1] float64 of each token after the first, from one plain pass."""
    runner = llm._loaded.runner
    runner.release(0)
    logits = runner.forward(StepPlan((Feed(0, 0, tuple(ids), len(ids)),)))
    runner.release(0)
    table = logits[:-1].double().log_softmax(-1)
    return table.gather(1, torch.tensor(ids[1:])[:, None]).squeeze(1)


def alone():
    """A model of its own, whose lanes no engine uses."""
    return LLM("tiny")


def prefix(llm):
    found = llm.tokenizer.bos_id
    return found if found is not None else llm.tokenizer.eos_ids[0]


def test_a_text_has_the_sum_of_one_pass_behind_the_prefix_token(llm):
    ids = llm.tokenizer.encode(TEXT, special=False)
    plain = logprobs(alone(), [prefix(llm), *ids])
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


def test_the_strided_convention_is_the_loop_of_the_transformers_page(llm):
    ids, window, stride, other = llm.tokenizer.encode(TEXT), 12, 5, alone()
    total, count, done = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        values = logprobs(other, ids[begin:end])  # of the tokens begin + 1 to end
        new = end - max(done, begin + 1)
        total, count, done = total + float(values[len(values) - new :].sum()), count + new, end
        if end == len(ids):
            break
    score = llm.score(TEXT, convention="strided", window=window, stride=stride)
    assert score.totals.tokens == count == len(ids) - 1
    assert score.totals.logprob == pytest.approx(total, abs=1e-4)


def test_the_llama_convention_scores_the_second_half_of_each_window(llm):
    ids, window, other = llm.tokenizer.encode(TEXT), 10, alone()
    has_bos = ids[0] == llm.tokenizer.bos_id
    values = []
    for begin in range(0, len(ids) - window + 1, window):
        part = ids[begin : begin + window]
        part = [llm.tokenizer.bos_id, *part[1:]] if has_bos else part
        values += logprobs(other, part)[window // 2 :].tolist()
    score = llm.score(TEXT, convention="llama", window=window)
    nlls = -torch.tensor(values, dtype=torch.float64)
    perplexity = float(nlls.mean().exp())
    error = perplexity * math.sqrt(float((nlls**2).mean() - nlls.mean() ** 2) / (len(nlls) - 1))
    assert score.totals.tokens == len(values)
    assert score.totals.perplexity == pytest.approx(perplexity, rel=1e-5)
    assert score.totals.perplexity_error == pytest.approx(error, rel=1e-4)
    with pytest.raises(UsageError, match="at least two windows"):
        llm.score(TEXT, convention="llama", window=200)


def test_a_pair_is_encoded_together_and_spaces_go_to_the_continuation(llm):
    one, other = llm.score(("Brindle is", " a town")), llm.score(("Brindle is ", "a town"))
    assert one.logprob == pytest.approx(other.logprob, abs=1e-6)
    ids = llm.tokenizer.encode("Brindle is a town")
    start = len(llm.tokenizer.encode("Brindle is"))
    plain = logprobs(alone(), ids)[start - 1 :]
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


def test_greedy_text_is_greedy_and_its_numbers_are_those_of_generation(llm):
    made = llm.generate("Once upon a time", temperature=0, max_tokens=8, logprobs=0)
    ids = [*llm.tokenizer.encode("Once upon a time"), *(one.chosen.id for one in made.logprobs)]
    plain = logprobs(alone(), ids)[-8:]
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

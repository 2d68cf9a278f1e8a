"""no_repeat_ngram, dry and lz: entries 25 and 28 to 33, and the plain references on random texts."""

import math
import random

import pytest
import torch

from processors.base import Admission, Env
from processors.errors import ParamError
from processors.history import History
from processors.registry import builtin_registry
from processors.rows import Rows
from processors.stages.repeats import DryParams, LzParams, NoRepeatNgramParams
from processors.testing.checks import View
from tests.processors.reference.twins import REFERENCE
from tests.processors.vectors.run import Words

INF = math.inf


WIDTH = 6


BARE = {"breakers": (), "exempt": ()}


def dry(run, text, **params):
    """What dry subtracts from each of six tokens, by id."""
    values = run("dry", {"multiplier": 1.0, "base": 2.0, **BARE, **params}, [0.0] * WIDTH, output=text)
    return {token: -value for token, value in enumerate(values) if value}


def test_the_longest_match_decides_and_its_penalty_grows_by_the_base(run):
    # Behind 0 1 2 once came 3, behind 1 2 alone 4.
    assert dry(run, (0, 1, 2, 3, 1, 2, 4, 0, 1, 2)) == {3: 2, 4: 1}
    assert dry(run, (0, 1, 2, 3, 5, 0, 1, 2), allowed=3) == {3: 1}
    assert dry(run, (0, 1, 2, 3, 5, 0, 1, 2), allowed=4) == {}
    assert dry(run, (0, 1, 2, 3, 5, 0, 1, 2), max_ngram=2) == {3: 1}


def test_a_match_may_overlap_the_end(run):
    assert dry(run, (0, 0, 0, 0)) == {0: 2}  # 0 0 0 before the last 0


def test_the_first_token_of_the_window_continues_nothing(run):
    assert dry(run, (3, 0), allowed=0) == {0: 1}


def test_scope_and_window_are_about_the_earlier_occurrence(run):
    for window, scope, penalised in [
        (None, "both", {2: 1, 3: 1}),
        (None, "prompt", {2: 1}),
        (None, "output", {3: 1}),
        (6, "both", {3: 1}),
    ]:
        params = {"multiplier": 1, "window": window, "scope": scope, **BARE}
        after = run("dry", params, [0.0] * WIDTH, prompt=(0, 1, 2), output=(0, 1, 3, 4, 0, 1))
        assert {token: -value for token, value in enumerate(after) if value} == penalised, window


def test_count_takes_the_continuations_of_the_longest_match_as_often_as_they_came(run):
    text = (0, 1, 2, 0, 1, 2, 0, 1, 3, 1, 4, 0, 1)
    assert dry(run, text) == {2: 1, 3: 1}
    assert dry(run, text, matches="count") == {2: 2, 3: 1}
    assert dry(run, text, matches="count", allowed=1) == {2: 4, 3: 2}
    assert dry(run, text, matches="count", allowed=1, max_ngram=1) == {2: 2, 3: 1, 4: 1}


def test_huge_penalties_leave_legal_tokens_finite(run):
    after = run("dry", {"multiplier": 1e300, "base": 1e300, **BARE}, [0.0, -INF], output=(0,) * 400)
    assert after == [torch.finfo(torch.float32).min, -INF]


def test_the_exponent_stops_where_the_power_would_pass_the_largest_float32(run):
    """llama.cpp's bound: the whole part of 88.7228391 / ln(base), 8 for 40,000."""
    after = run("dry", {"multiplier": 1e-30, "base": 4e4, **BARE}, [0.0], output=(0,) * 400)
    assert after == [pytest.approx(-1e-30 * 4e4**8, rel=1e-6)]


def test_a_breaker_ends_the_match_and_is_never_penalised(run):
    words = Words(("a", "b", "c", "x", "b\nx", "e"))
    text, params = (0, 1, 3, 2, 0, 1), {"multiplier": 1.0, "allowed": 1}
    env = {"output": text, "vocabulary": words}
    assert run("dry", params | {"breakers": ["x"]}, [0.0] * WIDTH, **env) == [0.0] * WIDTH
    assert run("dry", params | {"breakers": ["\n"]}, [0.0] * WIDTH, **env) == [0, 0, 0, -1.75, 0, 0]
    assert run("dry", params | {"breakers": ["cab"]}, [0.0] * WIDTH, **env) == [0.0] * WIDTH  # across three
    assert run("dry", params | {"breakers": ["xca"]}, [0.0] * WIDTH, **env) == [0, 0, 0, -1, 0, 0]


def test_strict_is_koboldcpps_rule(run):
    """One token more than allowed behind a breaker, and a breaker that is one token is penalised."""
    words = Words(("a", "b", "c", "x", "\n", "e"))
    params = {"multiplier": 1.0, "allowed": 1, "breakers": ["\n"]}
    for text, plain, strict in (
        ((1, 2, 4, 1), {2}, set()),
        ((0, 4, 3, 0), set(), {4}),
        ((4, 0, 1, 2, 0, 1), {2}, {2}),
    ):
        for is_strict, expected in ((False, plain), (True, strict)):
            after = run("dry", {**params, "strict": is_strict}, [0.0] * WIDTH, output=text, vocabulary=words)
            assert {token for token in range(WIDTH) if after[token]} == expected, (text, is_strict)


def test_special_tokens_are_exempt_and_end_a_match(run, vocabulary):
    assert (
        run("dry", {"multiplier": 1, "allowed": 1}, [0.0] * 20, output=(5, 2, 9, 5), vocabulary=vocabulary)
        == [0.0] * 20
    )
    for exempt, banned in ((["special"], []), ([], [9])):
        after = run(
            "no_repeat_ngram",
            {"n": 3, "exempt": exempt},
            [0.0] * 20,
            prompt=(7, 2, 9, 7, 2),
            vocabulary=vocabulary,
        )
        assert [token for token in range(20) if after[token] == -INF] == banned


def test_no_breaker_may_be_empty():
    with pytest.raises(ParamError, match="empty text, which would end every repetition"):
        DryParams(1.0, breakers=("x", ""))
    with pytest.raises(ParamError, match="the limit is 1024"):
        DryParams(1.0, breakers=("x" * 1025,))


def test_an_ngram_longer_than_the_text_bans_nothing_and_one_token_bans_all_seen(run):
    logits = [0.0] * WIDTH
    assert run("no_repeat_ngram", {"n": 9}, logits, prompt=(0, 0, 0)) == logits
    assert run("no_repeat_ngram", {"n": 1}, logits, prompt=(0,), output=(3,)) == [-INF, 0, 0, -INF, 0, 0]
    assert run("no_repeat_ngram", {"n": 1, "window": 1}, logits, prompt=(0,), output=(3,)) == [
        0,
        0,
        0,
        -INF,
        0,
        0,
    ]


def test_lz_takes_the_cheapest_code(run):
    """Token 2 came 3 tokens back behind 0 1: (log2(4) + log2(3)) / 3 bits of the 3 that one of 8 takes."""
    after = run("lz", {"strength": 1.0}, [0.0] * 8, output=(0, 1, 2, 0, 1))
    saved = {2: 3 - (2 + math.log2(3)) / 3, 0: 3 - math.log2(3), 1: 3 - 1}
    assert after == pytest.approx([-saved.get(token, 0) for token in range(8)], abs=1e-6)


def forced(name, params, prompt, output, flags, num_drafts=0):
    """Ids that the stage lowers after output tokens of which some were forced; the last ones are drafts."""
    stage = builtin_registry().load(name)(Env(WIDTH))
    history, size = History(), len(output) - num_drafts
    history.admit(0, prompt)
    stage.admit(0, params, Admission(prompt))
    history.append([0], [output[:size]], [flags[:size]])
    stage.commit(0, output[:size])
    rows = Rows.build(history, [0], [output[size:]])
    if num_drafts:
        rows = rows.with_forced(None, torch.tensor([flags[size:]] * len(rows)))
    after = stage.apply(torch.zeros(len(rows), WIDTH), rows)[-1]
    return torch.nonzero(after).flatten().tolist()


def test_tokens_that_a_grammar_forced_are_neither_repeated_nor_part_of_a_match():
    """A key of JSON that a schema demands again stays as likely as it was [31]."""
    dry, ngram, free = DryParams(1.0, **BARE), NoRepeatNgramParams(3, exempt=()), (False,) * 5
    text = (0, 1, 2, 0, 1)
    for name, params in (("dry", dry), ("no_repeat_ngram", ngram)):
        assert all(forced(name, params, (), text, free, num_drafts) == [2] for num_drafts in range(6))
        for place in range(5):
            flags = tuple(place == at for at in range(5))
            assert all(forced(name, params, (), text, flags, num_drafts) == [] for num_drafts in range(6))
    assert forced("dry", dry, (5,), text, free) == [2]


TEXTS = ("a", "b", "ab", "\n", "", "ba", "x", "aab")


def random_params(rng):
    share = {
        "scope": rng.choice(("prompt", "output", "both")),
        "window": rng.choice((None, None, rng.randint(1, 12))),
        "exempt": tuple(rng.sample(range(8), rng.choice((0, 0, 1, 2)))),
    }
    kind = rng.randrange(4)
    if kind == 0:
        return NoRepeatNgramParams(rng.randint(1, 5), **share)
    if kind == 1:
        return LzParams(rng.choice((0.2, 3.0)), length=rng.randint(1, 9), **share)
    return DryParams(
        rng.choice((0.5, 2.0)),
        base=rng.choice((1.0, 1.3, 1.75)),
        allowed=rng.randint(0, 4),
        breakers=tuple(rng.sample(("a", "ba", "abab", "x\n", "\n", "aaab", "bx"), rng.randint(0, 3))),
        max_ngram=rng.choice((None, 2, 5)),
        matches=rng.choice(("max", "count")),
        strict=rng.random() < 0.3,
        **share,
    )


def check_random_texts(seed):
    """64 requests side by side, over two steps, with drafts: some 200 rows a seed."""
    rng, width = random.Random(seed), len(TEXTS) + 1
    env, history, stages = Env(width, Words(TEXTS)), History(), {}
    requests = []
    for slot in range(64):
        params, letters = random_params(rng), rng.sample(range(width), rng.randint(1, width))
        texts = [rng.choices(letters, k=rng.randint(0, most)) for most in (30, 20, 4)]
        requests.append((params, *texts))
        name = {NoRepeatNgramParams: "no_repeat_ngram", LzParams: "lz", DryParams: "dry"}[type(params)]
        stage = stages.setdefault(name, builtin_registry().load(name)(env))
        history.admit(slot, texts[0])
        stage.admit(slot, params, Admission(tuple(texts[0])))
    for step in range(2):
        for name, stage in stages.items():
            slots = [slot for slot, (params, *_) in enumerate(requests) if type(params) is stage.Params]
            if step:
                history.append(slots, [requests[slot][2] for slot in slots])
                for slot in slots:
                    stage.commit(slot, requests[slot][2])
            rows = Rows.build(history, slots, [requests[slot][3] for slot in slots])
            logits = torch.randn(len(rows), width, generator=torch.Generator().manual_seed(seed))
            logits[torch.rand(logits.shape, generator=torch.Generator().manual_seed(seed)) < 0.1] = -INF
            after = stage.apply(logits.clone(), rows).tolist()
            for row, slot, drafts, found in zip(
                logits.tolist(), rows.host_slots, rows.host_drafts, after, strict=True
            ):
                params, prompt, output, _ = requests[slot]
                output = (*(output if step else ()), *drafts)
                expected = REFERENCE[name](
                    row, params, View(tuple(prompt), output, vocabulary=env.vocabulary)
                )
                assert found == pytest.approx(expected, rel=1e-5, abs=1e-5), (params, prompt, output)

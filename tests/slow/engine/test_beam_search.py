"""Beam searches against all continuations and against transformers."""

from dataclasses import replace
from itertools import cycle, product

import pytest
import torch

from gencli.core.events import Finish, Token
from gencli.core.request import Beams, Limits, Request
from gencli.engine.beam_search import log_probabilities
from gencli.engine.best_of import rounded
from gencli.engine.engine import Engine
from gencli.engine.slot_state import admission
from gencli.models.hf_runner import HFRunner
from gencli.models.other_runners import FakeRunner
from gencli.text.tokenizer import ByteTokenizer
from processors.base import Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from tests.engine.beam_cases import LETTERS, engine, request, search, texts
from tests.engine.harness import TOKENIZER, ends_of
from tests.engine.harness import request as plain
from tests.engine.test_beam_search import samples, texts_of
from tests.models.tiny_models import VOCAB, build

TOY = (97, 98, 99, 257)  # a, b, c and the end of the text
CHAIN = "allowed=[97,98,99,257]"


def every_text(table, prompt, most):
    """Sum of logprobs of every text over the toy vocabulary, by its tokens."""
    found = {}
    for length in range(1, most + 1):
        for ids in product(TOY, repeat=length):
            if 257 in ids[:-1] or (ids[-1] != 257 and length < most):
                continue
            last, total = prompt[-1], 0.0
            for token in ids:
                row = table[last].double()[list(TOY)].log_softmax(0)
                total += row[TOY.index(token)].item()
                last = token
            found[ids] = total
    return found


def test_enough_beams_find_the_best_of_all_texts():
    for penalty, seed in product((-0.5, 0.0, 0.6, 1.0, 2.0), (1, 2)):
        runner = FakeRunner(258, seed, eos_ids=TOKENIZER.eos_ids, max_lanes=120)
        prompt = TOKENIZER.encode("x")
        known = every_text(runner.table, prompt, 4)
        best = sorted((total / len(ids) ** penalty for ids, total in known.items()), reverse=True)[:5]
        one = request("x", width=120, penalty=penalty, chain=CHAIN, max_tokens=4, n=5)
        ends = search([one], runner=runner, max_batch=120)
        assert [ends["x", j].score for j in range(5)] == pytest.approx(best), (penalty, seed)


def test_neighbours_and_chunks_of_the_prompt_change_nothing():
    many = [
        request("Hello", width=2),
        request("a", width=4, penalty=0.6, early=True),
        request("the big cat " * 5, width=3, penalty=2.0),
        request("zz", width=1),
    ]
    alone = {key: found for one in many for key, found in texts([one]).items()}
    runner = FakeRunner(258, eos_ids=(257,))
    assert texts(many, runner=runner) == texts(many, step_tokens=7) == alone
    assert [runner.length(lane) for lane in range(8)] == [0] * 8  # lanes are empty after a search
    assert texts([*many, plain("beside", chain=LETTERS)], max_batch=4) == alone | {"beside": []}


def test_a_search_finishes_under_a_steady_load_of_samples():
    """Two new samples for each that ends; fewer than 64 of them overtake the search."""
    for width in (2, 4):
        on, number, ends = engine(max_batch=4), 0, {}
        load = iter(samples(2000, max_tokens=4))
        for _ in range(8):
            on.submit(next(load))
        on.submit(request("search", width=width))
        while ("search", 0) not in ends:
            new = ends_of(on.step())
            ends |= new
            for _ in range(2 * len(new)):
                on.submit(next(load))
            number += 1
        alone = texts_of(search([request("search", width=width)]))
        assert texts_of({("search", 0): ends["search", 0]}) == alone, width
        assert len(ends) < 8 + 64 + 4 + 1, width


def test_searches_and_samples_of_one_batch_are_as_alone():
    for max_batch in (3, 5, 16):
        rows = [
            request("a", width=3, n=2, max_tokens=10),
            *samples(3, n=2, max_tokens=10),
            request("b", width=2, max_tokens=10),
            plain("best", chain=LETTERS, best_of=4, n=2, max_tokens=10),
            request("a long prompt, read in chunks", width=3, max_tokens=10),
        ]
        alone = {key: text for row in rows for key, text in texts_of(search([row])).items()}
        assert texts_of(search(rows, max_batch=max_batch, step_tokens=6)) == alone, max_batch


CHAINS = {
    "ban": Chain.parse(LETTERS + '|ban=["ab","dd","c a"]'),
    "penalties": Chain.parse(LETTERS + "|repetition=1.4|frequency=0.6|presence=0.3"),
    "window": Chain.parse(LETTERS + "|repetition:penalty=1.5,scope=output,window=3,exempt=[97]"),
    "bias": Chain.parse(LETTERS + "|min_tokens=6|bias=[[97,1.5],[257,2.0]]"),
    "grammar": Chain.parse("frequency=0.6").with_stage(
        "grammar", kind="regex", text="([abc]{2,3} ){2,4}(done|over)?"
    ),
    "choice": Chain.parse("presence=0.4").with_stage(
        "grammar", kind="choice", text='["abcd", "abce", "bcde", "bcdea", "edcba"]', backend="trie"
    ),
}


def fresh_logprob(table, one, ids):
    """The sum of logprobs of these tokens, each step with stages that know nothing of beams."""
    tokenizer = ByteTokenizer()
    history, pipeline = History(slots=1), Pipeline(Env(258, tokenizer, tokenizer.eos_ids))
    history.admit(0, one.prompt_ids)
    pipeline.admit(0, one.chain, admission(one, 1024))
    total, last = 0.0, one.prompt_ids[-1]
    for token in ids:
        rows = pipeline.prepare(Rows.build(history, [0]))
        logprobs = log_probabilities(pipeline(table[last][None], rows))
        forced = [entry.forced for entry in pipeline.preview(0, [token])]
        total, last = total + logprobs[0, token].item(), token
        history.append([0], [[token]], [forced])
        pipeline.commit(0, [token])
    return total


def test_every_beam_has_the_score_that_it_has_alone():
    for name in CHAINS:
        runner = FakeRunner(258, eos_ids=(257,))
        one = request("Hello", width=5, n=3, max_tokens=14)
        one = replace(one, chain=CHAINS[name])
        on = engine(runner=runner)
        on.submit(one)
        events = list(on.run())
        found = [event.ids for event in events if isinstance(event, Token)]
        (ends, *_) = [event.candidates for event in events if isinstance(event, Finish)]
        assert len(found) == 3, name
        for ids, candidate in zip(found, ends, strict=False):
            assert candidate.logprob == pytest.approx(fresh_logprob(runner.table, one, ids), abs=1e-4), name


ENDS = (3, 17, 31, 44, 58, 72, 90, 111)  # so many that random models end their texts
NUM_PROMPTS, NEW = 50, 14


class Ids(ByteTokenizer):
    """Ids that are letters below 120; the model says which of them end a text."""

    eos_ids = ()
    vocab_size = VOCAB


def model_of(kind, *, ends=ENDS, normalised=False):
    """A random model; `normalised` makes its logits logprobs."""
    model = build(kind)
    model.generation_config.eos_token_id = list(ends)
    model.generation_config.pad_token_id = 0
    if normalised:
        model.lm_head.register_forward_hook(lambda head, given, logits: logits.log_softmax(-1))
    return model


def cases(early=(True, False), penalties=(0.6, 1.0, 2.0)):
    """Prompts of 1 to 12 tokens, each with one of the settings."""
    draw = torch.Generator().manual_seed(5)
    settings = cycle((w, p, e) for e in early for p in penalties for w in (2, 3, 5))
    for _ in range(NUM_PROMPTS):
        size = int(torch.randint(1, 13, (), generator=draw))
        prompt = torch.randint(VOCAB, (size,), generator=draw).tolist()
        yield tuple(prompt), Beams(*next(settings))


def theirs(model, prompt, beams, *, bound="never", **options):
    """Every beam of generate(), the best first: tokens and score."""
    found = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        num_beams=beams.width,
        num_return_sequences=beams.width,
        length_penalty=beams.length_penalty,
        early_stopping=True if beams.early_stopping else bound,
        max_new_tokens=NEW,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    return [
        (until_end(ids[len(prompt) :].tolist()), score.item())
        for ids, score in zip(found.sequences, found.sequences_scores, strict=True)
    ]


def until_end(ids):
    last = next((place for place, token in enumerate(ids[:NEW]) if token in ENDS), NEW - 1)
    return tuple(ids[: last + 1])


def ours(model, wanted, chain=""):
    """The same of gencli, all prompts together."""
    on = Engine(HFRunner(model, max_lanes=16), Ids(), max_batch=16)
    for i, (prompt, beams) in enumerate(wanted):
        on.submit(Request(str(i), prompt, Chain.parse(chain), n=beams.width, limits=Limits(NEW), beams=beams))
    ids, scores = {}, {}
    for event in on.run():
        place = int(event.request), event.sample
        if isinstance(event, Token):
            ids[place] = event.ids
        elif isinstance(event, Finish):
            scores[place] = event.score
    return [[(ids[i, j], scores[i, j]) for j in range(beams.width)] for i, (_, beams) in enumerate(wanted)]


def assert_same(found, expected):
    """Equal sequences and scores; of scores with the same four digits the shorter, then smaller ids."""
    for one, unordered in zip(found, expected, strict=True):
        other = sorted(unordered, key=lambda entry: (-rounded(entry[1]), len(entry[0]), entry[0]))
        assert [ids for ids, _ in one] == [ids for ids, _ in other]
        assert [score for _, score in one] == pytest.approx([score for _, score in other], abs=1e-4)


def check_heuristic(kind):
    model, wanted = model_of(kind), list(cases(early=(False,), penalties=(0.0,)))[:12]
    assert_same(ours(model, wanted), [theirs(model, *case, bound=False) for case in wanted])


def test_without_a_length_penalty_the_heuristic_is_the_bound():
    check_heuristic("qwen3")


def test_the_heuristic_of_transformers_can_miss_the_better_text():
    model = model_of("gpt2", ends=range(0, VOCAB, 4))
    wanted = list(cases(early=(False,), penalties=(1.0,)))[:12]
    found = [beams[0][1] for beams in ours(model, wanted)]
    heuristic = [theirs(model, *case, bound=False)[0][1] for case in wanted]
    assert all(one > other - 1e-5 for one, other in zip(found, heuristic, strict=True))
    assert any(one > other + 0.01 for one, other in zip(found, heuristic, strict=True))


def check_sequences(kind, count):
    model, wanted = model_of(kind), list(cases())[:count]
    found = ours(model, wanted)
    assert_same(found, [theirs(model, *case) for case in wanted])
    assert len({len(ids) for beams in found for ids, _ in beams}) > 5, kind  # texts end in many places


def check_stages(kind, count=18):
    model, wanted = model_of(kind, normalised=True), list(cases())[:count]
    for chain, options in (
        ("repetition:penalty=1.3,exempt=[]", {"repetition_penalty": 1.3}),
        ("min_tokens=6", {"min_new_tokens": 6}),
    ):
        expected = [theirs(model, *case, **options, renormalize_logits=True) for case in wanted]
        assert_same(ours(model, wanted, chain), expected)


def check_scores(kind):
    model, wanted = model_of(kind), list(cases(early=(False,)))[:6]
    for (prompt, beams), found in zip(wanted, ours(model, wanted), strict=True):
        for ids, score in found:
            with torch.inference_mode():
                logprobs = model(torch.tensor([[*prompt, *ids]])).logits[0].log_softmax(-1)
            total = sum(logprobs[len(prompt) - 1 + i, token].item() for i, token in enumerate(ids))
            assert score == pytest.approx(total / len(ids) ** beams.length_penalty, abs=1e-4), kind


def test_sequences_and_scores_are_those_of_transformers():
    check_sequences("llama", 18)  # each setting once


def test_penalties_and_minimal_lengths_are_those_of_transformers():
    check_stages("gpt2", count=6)


def test_scores_are_those_of_a_fresh_prefill():
    check_scores("falcon_h1")

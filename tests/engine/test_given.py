"""A given output has the log-probabilities that it had when it was generated, whatever the chain."""

import math
from dataclasses import replace

import pytest

from gencli.core.events import Error, Finish
from gencli.core.request import Beams, Limits
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from processors.catalog import GrammarParams
from processors.chain import Chain
from tests.engine.harness import TOKENIZER, Watched, engine, generate, request
from tests.engine.test_logprobs import assert_close, tokens_of

GRAMMAR = Chain((("grammar", GrammarParams(text="(abc|d)+e", kind="regex")),))


def again(wanted, ids, **options):
    """The tokens and entries of the request with this output given."""
    ((others, entries),) = tokens_of([replace(wanted, given=tuple(ids))], **options).values()
    assert tuple(others) == tuple(ids)
    return entries


def bans(entries):
    return [entry.chosen.banned_by for entry in entries]


def test_one_forward_reads_many_positions_and_no_more_than_a_slice(monkeypatch):
    wanted, runner = request("Hello", logprobs=0, given=(97, 98, 99) * 20, max_tokens=60), Watched()
    tokens_of([wanted], runner=runner)
    assert [plan.num_rows for plan in runner.plans] == [60]
    monkeypatch.setattr("gencli.engine.engine.slice_rows", lambda _: 32)
    runner = Watched()
    tokens_of([replace(wanted, id=name) for name in "abc"], runner=runner)
    assert max(plan.num_rows for plan in runner.plans) <= 16
    assert len(runner.plans) == 12  # five positions of each of three


def test_a_token_that_a_stage_bans_is_banned_and_the_next_one_is_not():
    wanted = request("Hello", chain="top_k=1", logprobs=0)
    ((ids, _),) = tokens_of([wanted]).values()
    other = (ids[0] + 1) % 256
    entries = again(wanted, (ids[0], other, *ids[1:3]))
    assert bans(entries)[:2] == ["", "top_k"]
    assert entries[1].chosen.processed == -math.inf
    assert math.isfinite(entries[1].chosen.logprob)


def test_behind_what_a_grammar_forbids_and_behind_its_end_no_token_is_possible():
    wanted = request("Hello", chain=GRAMMAR, logprobs=1)
    for size in (512, 3):  # in one step, and in several
        broken = again(wanted, b"abXddde", step_tokens=size)
        assert bans(broken) == ["", ""] + ["grammar"] * 5
        assert bans(again(wanted, b"abcdeabc", step_tokens=size)) == [""] * 5 + ["grammar"] * 3
        assert all(math.isfinite(entry.chosen.logprob) for entry in broken)
        assert all(one.banned_by == "grammar" for one in broken[-1].top)


def test_no_stop_ends_it_and_neighbours_change_nothing():
    eos = TOKENIZER.eos_ids[0]
    wanted = request("Hello", chain="frequency=1", logprobs=1, given=(97, eos, 98, eos, 99))
    ((ids, plain),) = tokens_of([wanted]).values()
    assert ids == [97, eos, 98, eos, 99]
    beside = [request(text, chain="temperature=0.9", max_tokens=9) for text in ("one", "two", "three")]
    texts = {key: end.text for key, end in generate(beside).items()}
    mixed = engine(max_batch=4)
    for one in (*beside[:2], wanted, beside[2]):
        mixed.submit(one)
    ends, entries = {}, []
    for event in mixed.run():
        if isinstance(event, Finish | Error):
            ends[event.request, event.sample] = event
        entries += getattr(event, "logprobs", ())
    assert {key: ends[key].text for key in texts} == texts
    assert ends["Hello", 0].reason == "length"
    assert_close(entries, plain)


def test_prompt_and_output_may_fill_the_context_and_no_more():
    on = {"runner": FakeRunner(context=12)}
    size = 13 - len(TOKENIZER.encode("abc"))
    assert len(again(request("abc", logprobs=0), (97,) * size, **on)) == size
    for text, options, said in (
        ("abc", {"given": (97,) * (size + 1)}, "have 14 tokens, but 13 fit"),
        ("abc", {"given": ()}, "no tokens"),
        ("abc", {"n": 2}, "one sample"),
        ("abc", {"beams": Beams(2)}, "one sample"),
        ("abc", {"limits": Limits(max_tokens=2)}, "`max_tokens` is 2"),
    ):
        with pytest.raises(UsageError, match=said):
            engine(runner=FakeRunner(context=12)).submit(request(text, **({"given": (97, 98, 99)} | options)))

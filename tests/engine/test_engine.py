"""Requests in, events out: the same text in any company, and every end has its reason."""

import random
import time

import pytest

from gencli.core.request import Limits, Stops
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from processors.chain import Chain
from processors.errors import ProcessorsError
from tests.engine.harness import (
    TOKENIZER,
    Finish,
    Token,
    Watched,
    engine,
    events_of,
    generate,
    request,
    texts,
)
from tests.transfers import counted_transfers

CHAINS = [
    "",
    "temperature=0.7",
    "temperature=0",
    "repetition=1.3 | presence=0.5 | temperature=1.2 | top_p=0.9",
    "suppress=[101,32] | frequency:penalty=0.4,window=8 | min_p=0.05",
    "min_tokens=12 | top_k=20",
    'ban=["a","e "] | bias=[[32,3.0]]',
]


def crowd(count=40, *, seed=0):
    """Requests that differ in prompt length, chain, draw, length and number of samples."""
    rng = random.Random(seed)
    for i in range(count):
        chain = CHAINS[i % len(CHAINS)]
        greedy = chain == "temperature=0"
        text = "".join(rng.choices("abcdefgh xyz", k=rng.randint(1, 60)))
        draw = "gumbel" if greedy else rng.choice(["gumbel", "multinomial"])
        most, n = rng.randint(1, 30), 1 if greedy else rng.choice([1, 1, 3])
        stops = Stops(strings=(" x",)) if i % 5 == 0 else Stops()
        yield request(text, key=i, seed=seed, chain=chain, draw=draw, max_tokens=most, n=n, stops=stops)


def test_samples_differ_share_the_prefill_and_each_is_that_of_a_request_for_it_alone():
    three, runner = texts([request(n=3, key="k")]), Watched()
    assert len(set(three.values())) == 3
    assert texts([request(n=2, key="k")]) == {key: three[key] for key in [("k", 0), ("k", 1)]}
    generate([request("x" * 100, n=8, max_tokens=5)], runner=runner, max_batch=8)
    assert sum(plan.num_tokens for plan in runner.plans) == 99 + 8 * 5
    many = request("x" * 50, n=6, max_tokens=9, key="k")
    assert texts([many], max_batch=2) == texts([many], max_batch=8)  # late samples copy from those that run


def test_a_long_prompt_does_not_stall_running_rows():
    on = engine(step_tokens=16)
    on.submit(request("a", key="short", max_tokens=20))
    on.submit(request("b" * 200, key="long", max_tokens=1))
    order = [event.request for event in on.run() if isinstance(event, Token)]
    assert order.index("long") >= 10


def test_requests_may_arrive_while_others_run():
    on = engine(max_batch=2)
    on.submit(request("a", key=1))
    events = on.run()
    next(events)
    on.submit(request("b", key=2))
    ends = {e.request: e.text for e in events if isinstance(e, Finish)}
    assert ends == {"1": texts([request("a", key=1)])["1", 0], "2": texts([request("b", key=2)])["2", 0]}


def test_every_end_has_its_reason():
    for options, reason, matched in (
        ({"max_tokens": 3}, "length", "max_tokens"),
        ({"limits": Limits(max_time=0.0)}, "length", "max_time"),
        ({"stops": Stops(ids=tuple(range(256)))}, "stop", None),
        ({"chain": "bias=[[257,100]]"}, "eos", 257),
        ({"chain": "allowed=[97]", "stops": Stops(loop=4)}, "loop", None),
        ({"chain": "allowed=[97]", "stops": Stops(strings=("aa",))}, "stop", "aa"),
    ):
        end = next(iter(generate([request(**options)]).values()))
        assert end.reason == reason, (options, reason, matched)
        assert matched is None or end.matched == matched, (options, reason, matched)


def test_a_text_that_runs_ends_when_its_time_has_passed():
    on = engine()
    on.submit(request(limits=Limits(max_tokens=200, max_time=0.1)))
    events = on.run()
    next(events)
    time.sleep(0.1)
    *_, end = events
    assert (end.reason, end.matched) == ("length", "max_time")


def test_a_full_context_ends_the_text_and_says_so():
    end = generate([request("abc", key="k", max_tokens=99)], runner=FakeRunner(context=10))["k", 0]
    assert (end.reason, end.matched, end.completion_tokens) == ("length", "context", 7)


def test_interrupt_gives_the_text_so_far_of_all_that_is_open():
    on = engine(max_batch=1)
    on.submit(request("a", key="runs"))
    on.submit(request("b", key="waits"))
    ends, seen = {}, ""
    for event in on.run():
        if isinstance(event, Token):
            seen += event.text
            on.interrupt()
        elif isinstance(event, Finish):
            ends[event.request] = event
    assert {end.reason for end in ends.values()} == {"interrupted"}
    assert ends["runs"].text == seen
    assert ends["waits"].text == ""


def test_what_cannot_run_is_refused_before_anything_runs_and_leaves_nothing_behind():
    on = engine()
    for make, message in (
        (lambda: request(""), "prompt is empty"),
        (lambda: request("x" * 2000), "has 2000 tokens, but fake"),
        (lambda: request(n=2, chain="temperature=0"), "same text"),
        (lambda: request(n=2, draw="greedy"), "same text"),
        (lambda: request(stops=Stops(ids=(999,))), "Token id 999"),
        (lambda: request(chain='bias=[["two words",1]]'), "two words"),
        (lambda: request(chain="suppress=[4000]"), "4000"),
        (lambda: request(stops=Stops(strings=("",))), "empty"),
        (lambda: request(stops=Stops(patterns=("a*",))), "empty text"),
        (lambda: request(stops=Stops(loop=1)), "loop"),
    ):
        with pytest.raises((UsageError, ProcessorsError), match=message):
            on.submit(make())
    assert texts([request("a")], on=on) == texts([request("a")])


def test_ids_beyond_the_tokenizer_are_never_drawn():
    wide = FakeRunner(vocab_size=400)
    events = events_of([request("abc", max_tokens=200)], runner=wide)
    assert max(i for e in events if isinstance(e, Token) for i in e.ids) < TOKENIZER.vocab_size
    on = engine(runner=wide)
    assert str(on.effective(request()).chain) == "tail=258"
    assert on.effective(request(chain="top_p=1 | temperature=0")).chain == Chain.parse("tail=258")


def test_a_step_reads_nothing_but_its_tokens():
    chain = "repetition=1.2 | frequency=0.1 | temperature=0.8 | min_p=0.01 | top_k=50 | top_p=0.95"
    with counted_transfers() as counts:
        generate([request(c * 5, key=c, chain=chain, max_tokens=20) for c in "abc"], max_batch=3)
    assert counts == {"tolist": 20}

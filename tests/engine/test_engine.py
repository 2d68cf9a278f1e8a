"""The engine: texts, ends, samples, cancellations, faults of a device, random requests in one batch."""

import random
import threading
import time
import tracemalloc
from dataclasses import replace
from itertools import islice

import pytest
import torch
import transformers as hf

from gencli.core.events import Error, Finish, Reading, Token
from gencli.core.request import Beams, Drafting, Guidance, Limits, Stops
from gencli.engine.engine import Engine
from gencli.errors import UsageError
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.other_runners import FakeRunner
from gencli.results.run_results import PromptProgress
from gencli.runtime.compiled_grammars import RetryingEngine
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.draft_model import ModelDrafter
from processors.chain import Chain
from processors.errors import ProcessorsError
from tests.engine.harness import TOKENIZER, Watched, ends_of, engine, events_of, generate, request, texts
from tests.models.tiny_models import base
from tests.sham import Fault, sham_device
from tests.slow.engine.test_device import saved
from tests.speculative.cases import LETTERS, WIDTH, outcomes
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


CHAIN = "temperature=0.9 | top_p=0.95"


def finish(on):
    """Run to the end by steps; the ends by request and sample."""
    events = []
    while on.has_work:
        events += on.step()
    return ends_of(events)


def test_steps_tell_what_a_run_does():
    rows = [request(key, chain=CHAIN) for key in "abc"]
    on = engine(max_batch=2)
    for one in rows:
        on.submit(one)
    assert {key: end.text for key, end in finish(on).items()} == texts(rows, max_batch=2)
    assert on.step() == []


def test_what_has_ended_or_is_not_known_changes_nothing():
    on = engine()
    on.cancel("a")
    on.submit(request("a", max_tokens=2))  # an id that was cancelled may be used
    assert finish(on)["a", 0].reason == "length"
    on.cancel("a")
    on.cancel("nobody")
    assert on.step() == []


def test_an_idle_loop_waits_for_a_request():
    on = engine()
    assert not on.wait(0)
    thread = threading.Thread(target=lambda: on.submit(request("a", max_tokens=2)))
    thread.start()
    assert on.wait(60)
    thread.join()
    assert finish(on)["a", 0].reason == "length"


def test_time_in_the_queue_is_known():
    on = engine(max_batch=1)
    for key in "ab":
        on.submit(request(key, max_tokens=20))
    ends = finish(on)
    first, second = ends["a", 0].timings, ends["b", 0].timings
    assert second.queue >= first.queue + first.prefill + first.decode > 0
    on.submit(request("a"))
    (end,) = on.end_waiting()  # it has waited all its time
    assert end.timings.queue == end.timings.first_token > 0
    assert (end.timings.prefill, end.timings.decode) == (0, 0)


def test_a_text_that_was_cancelled_is_what_was_told_of_it():
    on = engine()
    on.submit(request("a", max_tokens=400, chain=CHAIN))
    events = [event for _ in range(9) for event in on.step()]
    on.cancel("a")
    events += on.step()
    told = "".join(event.text for event in events if isinstance(event, Token))
    assert told == ends_of(events)["a", 0].text


def test_samples_that_had_not_begun_are_one_event_of_a_merged_run():
    def interrupted(n, **how):
        on = engine(max_batch=2)
        on.submit(request("a", n=n))
        on.step()
        on.interrupt()
        return list(on.run(**how))

    merged = interrupted(1_000_000, is_merged=True)
    assert len(merged) < 200
    ends = [event for event in merged if not isinstance(event, Token)]
    assert sum(1 + end.more for end in ends) == 1_000_000
    assert {end.reason for end in ends} == {"interrupted"}
    plain = ends_of(interrupted(100))
    assert sorted(plain) == [("a", sample) for sample in range(100)]
    assert {end.more for end in plain.values()} == {0}


MANY = 1_000_000


def asked(n, **rest):
    return replace(request("hi", max_tokens=2), n=n, **rest)


def test_a_million_samples_are_queued_in_flat_memory():
    for best_of in (None, MANY):
        on = Engine(FakeRunner(), TOKENIZER)
        list(RetryingEngine(on).run())
        tracemalloc.start()
        attempts = RetryingEngine(on)
        attempts.submit(asked(1 if best_of else MANY, best_of=best_of))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2**20, best_of


def test_what_waits_ends_and_what_runs_goes_on():
    on = engine(max_batch=2)
    on.submit(asked(500))
    events = on.run()
    first = list(islice(events, 1))
    ended = [event for event in on.end_waiting() if isinstance(event, Finish)]
    rest = [event for event in events if isinstance(event, Finish)]
    assert {event.reason for event in ended} == {"interrupted"}
    assert len(ended) + len(rest) + sum(isinstance(event, Finish) for event in first) == 500


def test_samples_that_have_not_begun_run_out_of_time_too():
    on = engine(max_batch=2)
    on.submit(asked(300, limits=Limits(max_tokens=2, max_time=1e-9)))
    ends = [event for event in on.run() if isinstance(event, Finish)]
    assert sorted(event.sample for event in ends) == list(range(300))
    assert {event.matched for event in ends} == {"max_time"}


LONG = "x" * 300


def events(*requests, **options):
    return events_of(requests, runner=FakeRunner(258), max_batch=4, **options)


def told(found):
    return [(event.request, event.done, event.total) for event in found if isinstance(event, Reading)]


def test_a_long_prompt_is_told_of_before_each_of_its_chunks():
    found = events(request(LONG, max_tokens=2), step_tokens=100)
    size = len(TOKENIZER.encode(LONG))
    assert told(found) == [(LONG, done, size) for done in (0, 100, 200)]
    assert not any(isinstance(event, Reading) for event in found[3:])
    assert told(events(request("short", max_tokens=2), step_tokens=2)) == []


def test_samples_that_are_chosen_among_tell_of_no_sample_that_is_not_wanted():
    for options in ({"best_of": 3}, {"beams": Beams(2), "draw": "greedy"}, {"n": 3}):
        found = events(request(LONG, max_tokens=2, **options))
        assert told(found)[0] == (LONG, 0, len(TOKENIZER.encode(LONG))), options
        samples = {event.sample for event in found if isinstance(event, Reading)}
        assert samples <= {*range(options.get("n", 1))}, options


def test_texts_are_those_of_an_engine_that_nobody_asks():
    found = events(request(LONG, max_tokens=5), request("short", max_tokens=5))
    ends = {event.request: event.text for event in found if isinstance(event, Finish)}
    for prompt in (LONG, "short"):
        (alone,) = [e for e in events(request(prompt, max_tokens=5)) if isinstance(e, Finish)]
        assert ends[prompt] == alone.text


def test_progress_counts_a_prompt_once_and_ends_with_its_text():
    shown = PromptProgress()
    assert shown.text == ""
    for sample, done in ((0, 512), (1, 0)):
        shown.add(Reading("a", sample, done, 901))
    assert shown.text == "reading a prompt: 512 of 901 tokens"
    shown.add(Reading("b", 0, 100, 1100))
    assert shown.text == "reading 2 prompts: 612 of 2,001 tokens"
    shown.add(Token("a", 0, "", (1,)))
    shown.add(Error("b", 0, "X", "x", ""))
    assert shown.text == ""


FULL = {
    "allocator": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "driver": lambda: torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be ..."),
    "cublas": lambda: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
    "cudnn": lambda: RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "triton": lambda: RuntimeError("Triton Error [CUDA]: out of memory"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(1)
    made = tmp_path_factory.mktemp("llama")
    hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**base(vocab_size=WIDTH))).save_pretrained(made)
    return made


def load(folder, device):
    return DecoderRunner.load(saved(folder), dtype="float32", device=device, max_lanes=12)


def everything():
    """Requests that together run what may fail."""
    chain = "repetition=1.1 | temperature=0.8 | top_p=0.9"
    drafting = Drafting("model", 3)
    return [
        request("a" * 252, key="plain", chain=chain, max_tokens=8),
        request(
            "abcabc", key="drafts", chain=f"{LETTERS} | temperature=0.5", drafting=drafting, max_tokens=8
        ),
        request("abc", key="guided", chain=chain, guidance=Guidance(1.7, tuple(b"cold ")), max_tokens=8),
        request("b" * 30, key="other", chain=f"{LETTERS} | mirostat:version=2,tau=2,eta=0.1", max_tokens=8),
        request("abc", key="beams", chain=LETTERS, beams=Beams(2), max_tokens=6),
    ]


def options(folder, device):
    draft = AdaptiveDrafter(ModelDrafter(load(folder, device)), name="model", clock=lambda: 0.0)
    return {"drafter": draft, "max_batch": 6, "step_tokens": 24}


PLACES = {
    "forward pass": "gencli/models/decoder/decoder.py:__call__",
    "keys and values": "gencli/models/kv/lane_buffers.py:_grow",
    "chain and draw": "gencli/engine/step_runner.py:_choose",
    "the draw": "processors/kernels/",
    "a draft model": "gencli/speculative/draft_model.py:propose",
    "guidance": "gencli/engine/guidance.py",
    "a beam's lane": "gencli/models/kv/lane_buffers.py:fork",
    "admission": "gencli/engine/engine.py:_admit",
    "what a step commits": "processors/history.py:append",
    "the reading": "gencli/engine/step_runner.py:_read",
}


@pytest.fixture(scope="module")
def here(folder):
    """What everything comes to on a CPU."""
    return outcomes(everything(), runner=load(folder, "cpu"), **options(folder, "cpu"))[0]


def test_what_does_not_fit_alone_fails_alone(folder):
    with sham_device() as seen:
        on = engine(runner=load(folder, "cuda"), max_batch=1)
        seen.faults.append(Fault(FULL["driver"], at=PLACES["keys and values"]))
        first, second = generate([request(c * 9, key=c, max_tokens=4) for c in "ab"], on=on).values()
    assert isinstance(first, Error)
    assert "memory is full" in first.message
    assert not isinstance(second, Error)

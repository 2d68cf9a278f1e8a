"""The engine: texts, ends, samples, cancellations, faults of a device, random requests in one batch."""

import random
import threading
import time
from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from gencli.core.events import Error, Finish, Token
from gencli.core.request import Beams, Stops
from gencli.errors import DeviceError, ModelError
from gencli.models.other_runners import FakeRunner
from processors.catalog import BUILTIN, Phase
from processors.chain import Chain
from processors.errors import ProcessorsError, device_fault, is_out_of_memory
from processors.testing.examples import EXAMPLES
from tests.engine.harness import Scripted, ends_of, engine, events_of, generate, ids_of, request, texts
from tests.engine.test_engine import (
    CHAIN,
    FULL,
    PLACES,
    asked,
    crowd,
    everything,
    finish,
    folder,
    here,
    load,
    options,
)
from tests.sham import Card, Fault, sham_device
from tests.speculative.cases import outcomes


def test_a_request_gives_the_same_text_alone_and_in_any_company():
    requests = list(crowd(24))
    expected = {key: text for one in requests for key, text in texts([one]).items()}
    assert len(set(expected.values())) > 24
    shuffled = random.Random(1).sample(requests, len(requests))
    for settings in ({"max_batch": 2}, {"step_tokens": 7}, {"max_batch": 3, "step_tokens": 16}):
        assert texts(shuffled if "max_batch" not in settings else requests, **settings) == expected, settings


def test_drafts_change_the_number_of_steps_and_nothing_else():
    requests = [one for one in crowd() if one.n == 1]
    answers = {one.prompt_ids: ids_of(events_of([one]))[one.id, 0] for one in requests}
    drafter = Scripted(answers)
    plain, drafted = generate(requests, max_batch=4), generate(requests, max_batch=4, drafter=drafter)
    assert drafter.proposed > 200
    plain, drafted = (
        {key: (e.text, e.reason, e.completion_tokens) for key, e in ends.items()} for ends in (plain, drafted)
    )
    assert drafted == plain


def test_joined_token_texts_are_the_final_text():
    events = events_of(crowd(20), max_batch=6)
    joined = defaultdict(str)
    for event in events:
        if isinstance(event, Token):
            joined[event.request, event.sample] += event.text
    assert joined == {(e.request, e.sample): e.text for e in events if isinstance(e, Finish)}


def test_what_fails_fails_alone_and_names_its_cause():
    class Broken(FakeRunner):
        def forward(self, plan):
            logits = super().forward(plan)
            logits[0, 5] = torch.nan
            return logits

    good = request("a", key="good")
    slow = Stops(patterns=("(a|aa)+$.b",))
    for bad, runner, kind, said in (
        (request("b", key="bad", chain="allowed=[97] | suppress=[97]"), FakeRunner(), "EmptySupport",
         "After stage 'suppress', for token 1 of"),
        (request("b", key="bad"), Broken(), "NonFiniteLogits", "stage 'model'"),
        (request("a", key="bad", chain="allowed=[97]", stops=slow, max_tokens=80), FakeRunner(),
         "GenerationError", "(a|aa)+"),
    ):  # fmt: skip
        ends = generate([bad, good], runner=runner)
        assert isinstance(ends["bad", 0], Error), said
        assert ends["bad", 0].type == kind
        assert said in ends["bad", 0].message
        assert isinstance(runner, Broken) or ends["good", 0].text == texts([good])["good", 0], said


def test_all_samples_of_a_request_end_and_the_others_go_on():
    for steps in (0, 1, 5):
        rows = [request(key, chain=CHAIN, n=3, max_tokens=40) for key in "abc"]
        on = engine(max_batch=4)
        for one in rows:
            on.submit(one)
        events = [event for _ in range(steps) for event in on.step()]
        on.cancel("b")
        ends = ends_of(events) | finish(on)
        assert {ends["b", sample].reason for sample in range(3)} == {"interrupted"}, steps
        alone = texts([rows[0], rows[2]], max_batch=4)
        assert {key: end.text for key, end in ends.items() if key[0] != "b"} == alone, steps


def test_submits_and_cancels_of_two_threads_leave_the_others_alone():
    rows = [request(f"r{n}", chain=CHAIN, n=1 + n % 2, max_tokens=12) for n in range(40)]
    for n in range(5, 40, 7):  # some are searches, some choose among samples
        rows[n] = replace(rows[n], n=1, beams=Beams(3)) if n % 2 else replace(rows[n], n=2, best_of=3)
    gone, on, done = {f"r{n}" for n in range(0, 40, 3)}, engine(max_batch=5), threading.Event()

    def feed():
        rng = random.Random(0)
        for one in rows:
            on.submit(one)
            if one.id in gone:
                on.cancel(one.id)
            time.sleep(rng.choice((0, 0, 0.001)))
        done.set()

    thread, events = threading.Thread(target=feed), []
    thread.start()
    while not done.is_set() or on.has_work:
        events += on.step()
    thread.join()
    ends = ends_of(events)
    alone = texts([one for one in rows if one.id not in gone])
    assert {key: end.text for key, end in ends.items() if key[0] not in gone} == alone
    assert len(ends) == sum(one.n for one in rows)
    assert texts(rows[:9], on=on) == texts(rows[:9])  # all slots are free again


def test_samples_are_those_of_any_order_and_requests_of_many_take_their_turns():
    assert texts([asked(150)], max_batch=3) == texts([asked(150)], max_batch=64)
    ends = generate([replace(asked(100), id="a"), replace(asked(1), id="b")], on=engine(max_batch=2))
    assert len(ends) == 101


def test_the_first_of_a_million_samples_come_at_once_and_an_interrupt_ends_the_rest():
    on = engine()
    on.submit(asked(20_000))
    events = on.run()
    first = next(event for event in events if isinstance(event, Finish))
    assert first.sample < 8
    on.interrupt()
    rest = [event for event in events if isinstance(event, Finish)]
    assert len(rest) == 19_999
    assert rest[-1].reason == "interrupted"
    assert sorted({event.sample for event in (first, *rest)}) == list(range(20_000))


def test_each_way_to_say_that_the_memory_is_full(folder):
    for name, make in FULL.items():
        assert is_out_of_memory(make()), name
        assert not device_fault(make()), name
        with sham_device() as seen:
            on = engine(runner=load(folder, "cuda"), max_batch=4)
            seen.faults.append(Fault(make, at=PLACES["forward pass"]))
            ends = generate([request(c * 9, key=c, max_tokens=4) for c in "abcd"], on=on)
            assert not any(isinstance(end, Error) for end in ends.values()), name
        assert "The memory is full with 4 sequences at once; from now on 2 run." in on.notices, name
        with sham_device() as seen:
            seen.faults.append(Fault(make, at="gencli/models/decoder/weight_readers.py", after=5))
            with pytest.raises(ModelError, match="does not fit into the memory of cuda:0"):
                load(folder, "cuda")
    with sham_device(Card(memory=40_000)), pytest.raises(ModelError, match="does not fit"):
        load(folder, "cuda")


LOST = (
    "CUDA error: device-side assert triggered",
    "CUDA error: unspecified launch failure",
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: the launch timed out and was terminated",
    "CUDA error: uncorrectable ECC error encountered",
    "CUDA error: GPU is lost",
    "CUDA error: the GPU has fallen off the bus",
    "CUDA error: unknown error",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "CUDA driver error: unknown error",
    "Triton Error [CUDA]: an illegal memory access was encountered",
)


def test_a_pass_ahead_without_memory_runs_later(folder):
    requests = [request(c * 9, key=c, chain="top_p=0.9", max_tokens=9) for c in "abcd"]
    here, _ = outcomes(requests, runner=load(folder, "cpu"), max_batch=4)
    with sham_device() as seen:
        seen.faults.append(Fault(FULL["allocator"], at="gencli/engine/run_ahead.py:launch"))
        assert outcomes(requests, runner=load(folder, "cuda"), max_batch=4)[0] == here
        assert seen.faults[0].struck


def test_memory_that_another_process_took_halves_the_batch(folder):
    requests = [request(c * 200, key=c, chain="top_p=0.9", max_tokens=8) for c in "abcd"]
    here, _ = outcomes(requests, runner=load(folder, "cpu"), max_batch=4)
    with sham_device(card := Card(memory=2**30)):
        runner = load(folder, "cuda")
        card.others = card.total - card.allocated - 900_000
        on = engine(runner=runner, max_batch=4)
        ends = generate(requests, on=on)
    assert {key: end.text for key, end in ends.items()} == {key: end[0] for key, (_, end) in here.items()}
    assert on.limit < 4


def test_a_gpu_that_failed_is_one_error_and_no_full_memory(folder):
    for what in LOST:
        error = torch.AcceleratorError(what)
        assert not is_out_of_memory(error), what
        with sham_device() as seen:
            on = engine(runner=load(folder, "cuda"), max_batch=4)
            seen.faults.append(Fault(lambda error=error: error, after=40, lost=True))
            for c in "abcd":
                on.submit(request(c * 9, key=c, max_tokens=20))
            with pytest.raises(DeviceError, match=what.split(": ")[1].split(" when")[0]):
                list(on.run())
            with pytest.raises(DeviceError):
                on.step()
        assert not any("memory" in notice for notice in on.notices), what


def random_chain(rng):
    """Any stages in any sound order: masks first, the rest shuffled every other time."""
    chosen = [spec for spec in BUILTIN if rng.random() < 0.1]
    masks = [spec for spec in chosen if spec.phase == Phase.CONSTRAIN]
    rest = [spec for spec in chosen if spec.phase != Phase.CONSTRAIN]
    if rng.random() < 0.5:
        rng.shuffle(rest)
    return Chain(tuple((spec.name, rng.choice(EXAMPLES[spec.params])) for spec in (*masks, *rest)))


def requests_that_run(rng, count):
    """Requests whose chains fit the byte vocabulary (a text that is not one token is refused)."""
    on, found = engine(runner=FakeRunner(vocab_size=300)), []
    while len(found) < count:
        one = request("the cat sat", key=len(found), chain=random_chain(rng), max_tokens=rng.randint(3, 20))
        try:
            on.submit(one)
        except ProcessorsError:
            continue
        found.append(one)
    return found


def outcome(end):
    return (end.type, end.message) if isinstance(end, Error) else (end.text, end.reason)


def check(seed, count=64):
    requests = requests_that_run(random.Random(seed), count)
    assert len({str(one.chain) for one in requests}) > 0.85 * count, seed
    alone = {}
    for one in requests:
        alone |= generate([one], runner=FakeRunner(vocab_size=300))
    together = generate(requests, runner=FakeRunner(vocab_size=300, max_lanes=count), max_batch=count)
    expected = {key: outcome(end) for key, end in alone.items()}
    assert {key: outcome(end) for key, end in together.items()} == expected, seed
    assert len({*expected.values()}) > 0.62 * count, seed


def test_random_chains_give_the_same_alone_and_in_one_batch():
    check(0, count=24)

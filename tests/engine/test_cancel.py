"""One request ends, from any thread, and its neighbours do not notice."""

import random
import threading
import time
from dataclasses import replace

from gencli.core.request import Beams
from tests.engine.harness import Token, ends_of, engine, request, texts

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

"""One request ends, from any thread, and its neighbours do not notice."""

import random
import threading
import time
from dataclasses import replace

from gencli.core.request import Beams
from tests.engine.harness import ends_of, engine, request, texts
from tests.engine.test_cancel import CHAIN, finish


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

"""One request ends, from any thread, and its neighbours do not notice."""

import threading

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

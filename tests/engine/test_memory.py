"""Where the memory is full, fewer run at once; every text stays what it was."""

import pytest

from gencli.core.events import Error, Finish, Token
from gencli.models.other_runners import FakeRunner
from tests.engine.harness import ends_of, engine, events_of, generate, request, texts

REQUESTS = [request(f"Row {n}", max_tokens=5 + n, chain='ban=["a"] | temperature=0.9') for n in range(9)]


class Sudden(FakeRunner):
    """Has memory until a step that is told."""

    def __init__(self, *steps):
        super().__init__()
        self.steps, self.count, self.num_frees = steps, 0, 0

    def forward(self, plan):
        self.count += 1
        if self.count in self.steps:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().forward(plan)

    def free_cache(self):
        self.num_frees += 1


def test_no_piece_of_text_is_told_twice():
    for n in (1, 3):
        rows, told = [request(f"Row {i}", n=n) for i in range(4)], {}
        events = events_of(rows, runner=Sudden(4, 9), max_batch=8)
        for event in events:
            if isinstance(event, Token):
                key = event.request, event.sample
                told[key] = told.get(key, "") + event.text
        ends = {key: end.text for key, end in ends_of(events).items()}
        assert told == ends, n
        assert len(ends) == 4 * n, n


def test_a_limit_that_was_found_is_kept():
    on = engine(runner=FakeRunner(memory_lanes=3), max_batch=8)
    generate(REQUESTS, on=on)
    generate([request(f"More {n}") for n in range(9)], on=on)
    said = "The memory is full with {} sequences at once; from now on {} run."
    assert on.notices == [said.format(8, 4), said.format(4, 2)]


def test_what_does_not_fit_alone_fails_alone():
    (end, *rest) = generate(REQUESTS[:3], runner=Sudden(1, 2), max_batch=2).values()
    assert isinstance(end, Error)
    assert "memory is full" in end.message
    assert all(isinstance(one, Finish) for one in rest)


def test_the_lanes_of_ended_texts_make_room_for_one_that_runs_alone_and_a_session_goes_on():
    runner = Sudden()
    on = engine(runner=runner, max_batch=2)
    generate([REQUESTS[0]], on=on)
    runner.steps = (runner.count + 2,)
    (end,) = generate([request("Another")], on=on).values()
    assert end.text == texts([request("Another")])["Another", 0]
    assert not on.notices
    turns = [request("Hello.", key=0, session="chat"), request("Hello. And", key=1, session="chat")]
    on = engine(runner=Sudden(3), max_batch=2)
    generate([turns[0], request("Beside")], on=on)
    assert generate([turns[1]], on=on)["1", 0].text == texts([turns[1]])["1", 0]


def test_other_errors_are_not_taken_for_it():
    class Broken(FakeRunner):
        def forward(self, plan):
            raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        generate(REQUESTS, runner=Broken())

"""With the next step launched before the last one is read, every event of every step is what it was."""

from dataclasses import replace

import pytest

from gencli.engine.run_ahead import RunAhead, make_ahead
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from tests.engine.ahead_cases import play
from tests.engine.harness import Error, engine, request, texts
from tests.sham import CUDA, sham_device

READ = ("event", "processors/graphs.py:read")  # the one wait of a step: what it drew


def both(script, **options):
    """The events without the step ahead, which are those with it, and the engine that ran ahead."""
    plain, _ = play(script, run_ahead=False, **options)
    ahead, on = play(script, run_ahead=True, **options)
    assert ahead == plain
    return plain, on


def options(rng):
    return {"max_batch": rng.choice((3, 4, 8)), "step_tokens": rng.choice((8, 40, None))}


def test_most_steps_of_plain_requests_are_launched_ahead():
    plain, on = both({0: [("submit", request(key, max_tokens=30, chain="ignore_eos=true")) for key in "abc"]})
    assert (len(plain), on.ahead.num_launched, on.ahead.num_used) == (30, 29, 29)


def test_a_text_that_finds_no_token_fails_alone():
    stuck = request("x", chain='allowed=[97] | ban=["aaa"]')
    plain, on = both({0: [("submit", stuck), ("submit", request("y", max_tokens=9))]})
    failed = [event for step in plain for event in step if isinstance(event, Error)]
    assert [(event.request, event.text) for event in failed] == [("x", "aa")]
    assert on.ahead.num_used == 8


def test_an_interruption_gives_the_texts_so_far():
    for number in (1, 7, 30):
        found = []
        for is_on in (False, True):
            on, events = engine(run_ahead=is_on), []
            for key in "abc":
                on.submit(request(key))
            for event in on.run():
                events.append((event.request, getattr(event, "text", "")))
                if len(events) == number:
                    on.interrupt()
            found.append(events)
        assert found[0] == found[1], number


class Full(FakeRunner):
    """Has no memory for a pass beside what a step holds."""

    tried = 0

    def forward_ahead(self, plan, ids):
        self.tried += 1
        raise MemoryError


def test_where_the_memory_is_too_small_for_it_no_step_runs_ahead_and_texts_stay():
    rows = [request(key) for key in "abc"]
    runner = Full()
    on = engine(runner=runner, run_ahead=True)
    assert texts(rows, on=on) == texts(rows)
    assert (runner.tried, on.ahead.num_launched) == (2, 0)
    assert on.notices == ["The memory has no room for steps ahead: from now on each step is read first."]
    rows = [request(f"Row {n}", max_tokens=5 + n, chain="temperature=0.9") for n in range(9)]
    for lanes in (1, 3, 5):
        assert texts(rows, runner=FakeRunner(memory_lanes=lanes), run_ahead=True) == texts(rows), lanes


class Serial(FakeRunner):
    """Takes tokens of the host only."""

    def __init__(self):
        super().__init__()
        self._spec = replace(self._spec, can_run_ahead=False)


def test_it_is_on_for_a_gpu_alone_unless_it_is_asked_for():
    assert make_ahead(FakeRunner(), None) is make_ahead(FakeRunner(), False) is None
    assert isinstance(make_ahead(FakeRunner(), True), RunAhead)
    with sham_device():
        assert isinstance(make_ahead(FakeRunner(device=CUDA), None), RunAhead)
        assert make_ahead(FakeRunner(device=CUDA), False) is None
    assert make_ahead(Serial(), None) is None
    with pytest.raises(UsageError, match="fake:258:0 takes no tokens that the host has not read"):
        make_ahead(Serial(), True)

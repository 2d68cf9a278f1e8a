"""Where the memory is full, fewer run at once; every text stays what it was."""

from gencli.models.other_runners import FakeRunner
from tests.engine.harness import engine, texts
from tests.engine.test_memory import REQUESTS, Sudden


def test_texts_stay_wherever_the_memory_ends():
    expected = texts(REQUESTS)
    for lanes in (1, 2, 3, 5, 8):
        on = engine(runner=FakeRunner(memory_lanes=lanes), max_batch=8)
        assert texts(REQUESTS, on=on) == expected, lanes
        assert bool(on.notices) == (lanes < 8), lanes
    for steps in ((1,), (4,), (3, 4, 5), (2, 9, 17)):
        runner = Sudden(*steps)
        assert texts(REQUESTS, runner=runner, max_batch=8) == expected, steps
        assert runner.num_frees == len(steps), steps

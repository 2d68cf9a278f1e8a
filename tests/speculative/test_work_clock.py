"""Costs of drafts are measured in thread time on a CPU, in wall time otherwise."""

import time

import pytest
import torch

from gencli.engine.engine import Engine
from gencli.models.fake import FakeRunner
from gencli.speculative.costs import work_clock
from tests.engine.harness import TOKENIZER, request
from tests.speculative.timed import Ticking, TimedDrafter


def test_beside_an_accelerator_it_is_the_clock_on_the_wall():
    for kind in ("cuda", "mps"):
        assert work_clock(torch.device(kind)) is time.perf_counter, kind


def test_on_a_cpu_waiting_costs_nothing():
    clock = work_clock(torch.device("cpu"))
    if clock is time.perf_counter:
        pytest.skip("this system counts the time of threads too coarsely")
    assert clock is time.thread_time


@pytest.mark.parametrize("given", [True, False])
def test_a_clock_that_is_given_times_all(given):
    seen = []

    class Noting(TimedDrafter):
        def measure(self, step):
            seen.append(step.seconds)

    clock = Ticking()
    drafter = Noting([], clock)
    on = Engine(FakeRunner(), TOKENIZER, drafter=drafter, clock=clock if given else None)
    on.submit(request("abc", chain="ignore_eos=true", max_tokens=4))
    list(on.run())
    assert all(seconds == 0 for seconds in seen) == given

"""Costs of drafts are measured in thread time on a CPU, in wall time otherwise."""

import time

import torch

from gencli.engine.engine import Engine
from gencli.models.other_runners import FakeRunner
from gencli.speculative.adaptive_drafts import work_clock
from tests.engine.harness import TOKENIZER, request
from tests.speculative.timed import Ticking, TimedDrafter


def test_it_is_the_time_of_the_thread_on_a_cpu_and_the_clock_on_the_wall_beside_an_accelerator():
    for kind in ("cuda", "mps"):
        assert work_clock(torch.device(kind)) is time.perf_counter, kind
    is_fine = time.get_clock_info("thread_time").resolution <= 1e-5
    assert work_clock(torch.device("cpu")) is (time.thread_time if is_fine else time.perf_counter)


def test_a_clock_that_is_given_times_all():
    class Noting(TimedDrafter):
        def measure(self, step):
            seen.append(step.seconds)

    for clock in (Ticking(), None):
        seen = []
        on = Engine(FakeRunner(), TOKENIZER, drafter=Noting([], clock or Ticking()), clock=clock)
        on.submit(request("abc", chain="ignore_eos=true", max_tokens=4))
        list(on.run())
        assert all(seconds == 0 for seconds in seen) == bool(clock)

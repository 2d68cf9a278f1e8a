"""Functions are recorded at their second use, replayed after it, and run as they are where that fails."""

import weakref

import pytest
import torch

from processors.graphs import Graphs
from tests.recorder import CpuRecorder


class Work:
    """A function of static tensors that counts how often it runs on the host."""

    def __init__(self, fault=None):
        self.given, self.runs, self.fault = torch.zeros(2), 0, fault

    def __call__(self):
        self.runs += 1
        return self.given + 1


class Failing:
    """A recorder that raises."""

    def __init__(self, error):
        self.error, self.tried = error, 0

    def record(self, run):
        self.tried += 1
        raise self.error

    def renew(self):
        pass


def uses(graphs, work, count, key="a"):
    """Results of so many uses with new contents each time."""
    found = []
    for number in range(count):
        work.given.fill_(number)
        found.append(graphs.run(key, work).tolist())
    return found


WANTED = [[number + 1.0] * 2 for number in range(5)]


def test_the_second_use_records_and_later_ones_replay():
    graphs, work = Graphs(CpuRecorder), Work()
    assert uses(graphs, work, 5) == WANTED
    assert work.runs == 2
    assert (graphs.num_kept, graphs.num_recorded, graphs.num_replayed) == (1, 1, 4)


def test_without_a_recorder_each_use_runs():
    graphs, work = Graphs(None), Work()
    assert uses(graphs, work, 5) == WANTED
    assert work.runs == 5


def test_a_key_that_is_used_once_is_not_recorded():
    graphs, work = Graphs(CpuRecorder), Work()
    for key in range(5):
        graphs.run(key, work)
    assert graphs.num_recorded == 0


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("full"), RuntimeError("operation not permitted\nmore")]
)
def test_what_cannot_be_recorded_runs_as_it_is_and_one_notice_says_so(error):
    recorder, work = Failing(error), Work()
    graphs = Graphs(lambda: recorder)
    assert uses(graphs, work, 5) == WANTED
    assert uses(graphs, work, 5, key="b") == WANTED
    assert recorder.tried == 2
    assert len(graphs.notices) == 1
    assert "\n" not in graphs.notices[0]


def test_a_full_memory_is_named_whoever_tells_of_it():
    recorder = Failing(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"))
    graphs = Graphs(lambda: recorder)
    uses(graphs, Work(), 2)
    assert "(the memory is full)" in graphs.notices[0]


def test_what_fails_without_a_graph_too_is_its_own_error_alone():
    lost = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    graphs, work = Graphs(lambda: Failing(lost)), Work()
    uses(graphs, work, 1)

    def broken():
        raise lost

    with pytest.raises(torch.AcceleratorError):
        graphs.run("a", broken)
    assert graphs.notices == []


def test_what_a_failed_recording_held_is_free_before_the_function_runs_without_it():
    held = []

    class Breaking(CpuRecorder):
        def record(self, run):
            def broken():
                made = run()
                held.append(weakref.ref(made))
                raise torch.OutOfMemoryError("full")

            return super().record(broken)

    class Looking(Work):
        def __call__(self):
            self.alive = [one() is not None for one in held]
            return super().__call__()

    graphs, work = Graphs(Breaking), Looking()
    assert uses(graphs, work, 2) == WANTED[:2]
    assert work.alive == [False]


class Full:
    """A recorder for which the memory is full after one graph."""

    def __init__(self):
        self.inner = CpuRecorder()

    def record(self, run):
        if self.inner.recorded:
            raise torch.OutOfMemoryError("full")
        return self.inner.record(run)

    def renew(self):
        pass


def test_all_graphs_go_when_a_recording_fills_the_memory():
    graphs = Graphs(Full)
    uses(graphs, Work(), 3)
    assert graphs.num_kept == 1
    uses(graphs, Work(), 3, key="b")
    assert graphs.num_kept == 0


def test_the_graph_used_longest_ago_is_dropped_first():
    graphs, works = Graphs(CpuRecorder, max_graphs=2), {key: Work() for key in "abc"}
    for key in "abac":
        uses(graphs, works[key], 2, key)
    runs = {key: work.runs for key, work in works.items()}
    for key in "ac":
        uses(graphs, works[key], 2, key)
    assert {key: work.runs for key, work in works.items()} == runs
    uses(graphs, works["b"], 1, "b")
    assert works["b"].runs == runs["b"] + 1


def test_memory_of_graphs_is_bounded():
    graphs = Graphs(CpuRecorder, max_bytes=20)  # a graph of Work holds 8
    for key in "abcd":
        uses(graphs, Work(), 2, key)
    assert graphs.num_kept == 2
    assert graphs.nbytes == 16


def test_after_clear_a_key_is_recorded_anew_with_its_new_tensors():
    graphs, work = Graphs(CpuRecorder), Work()
    uses(graphs, work, 3)
    graphs.clear()
    assert graphs.num_kept == 0
    work.given = torch.zeros(2)
    assert uses(graphs, work, 5) == WANTED
    assert graphs.num_recorded == 2

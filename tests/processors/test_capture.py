"""A capture of a CUDA graph that fails leaves stream and allocator as they were. CUDA is played here."""

import pytest
import torch

from processors.graphs import CudaRecorder, Graphs
from tests.sham import CUDA, sham_device


class Driver:
    """What PyTorch does in a capture: `open` are the pools for which the allocator believes that one goes on.

    A capture in which something was `refused` cannot end, and leaves its pool open.
    """

    def __init__(self):
        self.open, self.pools, self.streams, self.refused = [], [], [], False

    def pool(self):
        self.pools.append((0, len(self.pools) + 1))
        return self.pools[-1]

    def end(self, device, pool):
        assert device == 0
        if pool not in self.open:
            raise RuntimeError("not currently recording")
        self.open.remove(pool)

    def graph(driver):  # noqa: N805
        class Graph:
            def capture_begin(self, pool, capture_error_mode):
                assert not driver.open
                assert capture_error_mode == "thread_local"
                driver.open.append(pool)
                driver.streams.append(torch.cuda.current_stream())
                self.pool = pool

            def capture_end(self):
                if driver.refused:
                    raise RuntimeError("a previous error during capture")
                driver.open.remove(self.pool)

            def replay(self):
                pass

        return Graph()


@pytest.fixture
def driver(monkeypatch):
    """The driver of a sham device."""
    with sham_device():
        one = Driver()
        monkeypatch.setattr(torch.cuda, "CUDAGraph", one.graph)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", one.pool)
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", one.end)
        monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda device, pool: None)
        yield one


def refused(driver, error):
    """A function in which something is not allowed in a capture."""

    def run():
        driver.refused = True
        raise error

    return run


def recorded(recorder, run):
    """The message of what a recording raises; "" if it succeeds."""
    try:
        recorder.record(run)
    except BaseException as error:
        return str(error)
    return ""


@pytest.mark.parametrize("error", [RuntimeError("not permitted"), KeyboardInterrupt("not permitted")])
def test_after_a_failed_capture_stream_and_allocator_are_as_before(driver, error):
    recorder, before = CudaRecorder(CUDA), torch.cuda.current_stream()
    assert recorded(recorder, refused(driver, error)) == "not permitted"
    assert torch.cuda.current_stream() is before
    assert not driver.open
    driver.refused = False
    assert not recorded(recorder, lambda: torch.zeros(1))
    assert len(driver.pools) == 2  # one without a graph is refused by PyTorch


def test_a_capture_that_cannot_end_raises(driver):
    driver.refused = True
    recorder, before = CudaRecorder(CUDA), torch.cuda.current_stream()
    assert recorded(recorder, lambda: torch.zeros(1)) == "a previous error during capture"
    assert torch.cuda.current_stream() is before
    assert not driver.open


def test_where_the_memory_is_full_its_reserve_is_freed_and_the_capture_tried_again(driver):
    tries = []

    def run():
        tries.append(1)
        if len(tries) == 1:
            raise torch.OutOfMemoryError("full")
        return torch.zeros(1)

    assert not recorded(CudaRecorder(CUDA), run)
    assert len(tries) == 2


def test_all_captures_are_on_one_stream_and_dropped_graphs_leave_their_pool(driver):
    graphs = Graphs(lambda: CudaRecorder(CUDA))
    for _ in range(3):
        for _ in range(3):
            graphs.run("key", lambda: torch.zeros(1))
        graphs.clear()
    assert graphs.num_recorded == 3
    assert len(set(map(id, driver.streams))) == 1
    assert len(driver.pools) == 4

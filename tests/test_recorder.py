"""The recorder of the tests: it replays what was recorded, and refuses what a CUDA graph cannot hold."""

from functools import partial

import pytest
import torch

from processors.graphs import upload_ints
from tests.recorder import CpuRecorder, NotRecordable


def table(ids, places, buffer):
    """A function of static tensors, with views, an edit in place and values of its own."""

    def run():
        buffer.transpose(0, 1)[places] = ids.float()[:, None]
        part = buffer[:, 1:].mul(2)
        part[0].add_(1)
        return part.sum(0), buffer.amax()

    return run


def test_a_replay_computes_from_what_the_inputs_hold_now():
    ids, places, buffer = torch.tensor([3, 4]), torch.tensor([0, 2]), torch.zeros(2, 5)
    graph = CpuRecorder().record(table(ids, places, buffer))
    fresh = torch.zeros(2, 5)
    for values, where in (([3, 4], [0, 2]), ([5, 6], [1, 4]), ([7, 8], [2, 3])):
        ids.copy_(torch.tensor(values))
        places.copy_(torch.tensor(where))
        sums, top = graph.replay()
        wanted = table(torch.tensor(values), torch.tensor(where), fresh)()
        assert torch.equal(sums, wanted[0])
        assert torch.equal(top, wanted[1])
        assert torch.equal(buffer, fresh)


def test_recording_changes_nothing():
    ids, places, buffer = torch.tensor([3, 4]), torch.tensor([0, 2]), torch.zeros(2, 5)
    CpuRecorder().record(table(ids, places, buffer))
    assert not buffer.any()


def test_outputs_are_the_same_tensors_at_each_replay():
    given = torch.ones(3)
    graph = CpuRecorder().record(lambda: given * 2)
    assert graph.replay() is graph.replay()


def test_it_records_in_inference_mode():
    with torch.inference_mode():
        given, weight = torch.ones(2, 3), torch.ones(4, 3)
        graph = CpuRecorder().record(lambda: torch.nn.functional.linear(given, weight).reshape(-1))
        given.fill_(2)
        assert graph.replay().tolist() == [6.0] * 8


READS = {
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "bool": lambda x: bool(x.any()),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "tensor": lambda x: x + torch.tensor([1.0, 2.0]),
    "upload": lambda x: x + upload_ints([1, 2], x.device),
    "list as index": lambda x: x[[0, 1]],
}


def test_reads_on_the_host_and_values_from_there_cannot_be_recorded():
    for name, run in READS.items():
        with pytest.raises(NotRecordable):
            pytest.fail(f"{name} is recorded: {CpuRecorder().record(partial(run, torch.ones(2)))}")


def test_a_count_of_copies_is_no_read():
    with torch.inference_mode():
        given = torch.zeros(2)
        graph = CpuRecorder().record(lambda: given.repeat_interleave(2))
        given.fill_(3)
        assert graph.replay().tolist() == [3.0] * 4


def test_a_number_is_an_argument_of_a_kernel():
    graph = CpuRecorder().record(lambda: torch.ones(2) * torch.tensor(2.0))
    assert graph.replay().tolist() == [2.0, 2.0]

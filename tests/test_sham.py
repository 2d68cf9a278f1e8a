"""The sham card and the recorder that tests use."""

from functools import partial

import pytest
import torch

from processors.graphs import upload_ints
from tests.recorder import CpuRecorder, NotRecordable
from tests.sham import CUDA, Card, Fault, sham_device
from tests.sham_cuda import Record

TWO = torch.device("cuda", 1)


def made(*values, device=CUDA):
    return torch.tensor(values).to(device, non_blocking=True)


def waits(seen: Record) -> list[str]:
    return [kind for kind, _ in seen.waits.elements()]


def test_an_event_is_the_only_wait_of_an_asynchronous_copy():
    with sham_device() as seen:
        there = made(1, 2, 3).to("cpu", non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        assert not seen.waits
        event.synchronize()
        assert there.tolist() == [1, 2, 3]
        assert waits(seen) == ["event"]


READS = {
    "list": lambda x: x.tolist(),
    "item": lambda x: x[0].item(),
    "sum": lambda x: x + 1,
    "array": lambda x: x.numpy(),
}


def test_pinned_memory_is_not_read_before_its_event():
    for name, read in READS.items():
        with sham_device():
            pinned = torch.empty(3, dtype=torch.int64, pin_memory=True)
            event = torch.cuda.Event()
            event.record()  # before the copy, so it says nothing about it
            pinned.copy_(made(1, 2, 3), non_blocking=True)
            event.synchronize()
            with pytest.raises(RuntimeError, match="before the copy to it"):
                pytest.fail(f"{name} is read: {read(pinned)}")
            event.record()
            event.synchronize()
            read(pinned)


def test_pinned_memory_is_not_changed_before_it_was_copied():
    with sham_device():
        pinned = torch.zeros(3).pin_memory()
        pinned.to(CUDA, non_blocking=True)
        assert pinned.tolist() == [0, 0, 0]
        with pytest.raises(RuntimeError, match="before the copy from it"):
            pinned.fill_(1)
        torch.cuda.synchronize()
        pinned.fill_(1)


def test_an_event_of_another_stream_covers_nothing():
    with sham_device(Card(), Card()):
        there = made(1, device=TWO).to("cpu", non_blocking=True)
        event = torch.cuda.Event()
        event.record()  # on cuda:0, the current device
        event.synchronize()
        with pytest.raises(RuntimeError, match="before the copy"):
            there.tolist()
        event.record(torch.cuda.current_stream(TWO))
        event.synchronize()
        assert there.tolist() == [1]


COPIES = {
    "item": lambda x: x[0].item(),
    "set an item": lambda x: x.__setitem__(0, 5),
    "set items": lambda x: x.__setitem__((made(0, 1), made(0, 1)), 5),
    "blocking": lambda x: x.copy_(torch.zeros(2, 2)),
    "pageable": lambda x: torch.zeros(2, 2, dtype=torch.int64).copy_(x, non_blocking=True),
    "mask": lambda x: x[x > 1],
    "list": lambda x: x[[0, 1]],
}


def test_the_host_waits():
    for name, copy in COPIES.items():
        with sham_device() as seen:
            one = made(1, 2, 3, 4).view(2, 2)
            one = one[0] if name in ("item", "set an item") else one
            seen.clear()
            copy(one)
            assert len(waits(seen)) == 1, name


def test_devices_do_not_mix():
    with sham_device(Card(), Card()), pytest.raises(RuntimeError, match="cuda:0 and cuda:1"):
        made(1) + made(1, device=TWO)


def test_a_device_without_a_number_is_the_current_one():
    with sham_device(Card(), Card()), torch.cuda.device(1):
        assert torch.zeros(1, device="cuda").device == TWO


def test_a_card_fills_up_and_what_is_freed_stays_reserved():
    with sham_device(Card(memory=4096, others=1024)):
        held = torch.zeros(2048, dtype=torch.uint8, device=CUDA)
        assert torch.cuda.mem_get_info() == (1024, 4096)
        with pytest.raises(torch.OutOfMemoryError):
            torch.zeros(2048, dtype=torch.uint8, device=CUDA)
        del held
        assert torch.cuda.mem_get_info() == (1024, 4096)
        assert torch.cuda.memory_reserved() - torch.cuda.memory_allocated() == 2048
        torch.cuda.empty_cache()
        assert torch.cuda.mem_get_info() == (3072, 4096)


def test_a_lost_device_stays_lost():
    with sham_device() as seen:
        one = made(1)
        seen.faults.append(Fault(lambda: torch.AcceleratorError("gone"), after=1, lost=True))
        one + 1
        for use in (lambda: one + 1, one.tolist, torch.cuda.empty_cache, torch.cuda.mem_get_info):
            with pytest.raises(torch.AcceleratorError):
                use()


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


RECORDED_READS = {
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
    for name, run in RECORDED_READS.items():
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

"""The stand-in for a GPU waits, races and fills up where a GPU does."""

import pytest
import torch

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

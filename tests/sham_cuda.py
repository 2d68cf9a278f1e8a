"""What torch.cuda is with the stand-in of tests/sham.py: streams, events, memory, devices and their faults.

An event's wait is counted as a wait. Memory is counted where a card has a size: as by PyTorch's
own allocator, what was freed stays reserved until the cache is emptied. A fault is raised by the operation
that it is set for.
"""

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch

__all__ = [
    "Call",
    "Card",
    "Copy",
    "Fault",
    "Record",
    "Step",
    "differences",
    "full_device",
    "here",
    "patches",
    "seen",
    "stream_of",
]

ROOT = Path(__file__).parent.parent


class Call(NamedTuple):
    """One launch: its name, and for each tensor on the device the shape, and (allocation, offset) as address.

    `values` are its other arguments, `place` is where in our code it was launched.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    addresses: tuple[tuple[int, int], ...]
    values: str
    place: str = ""


@dataclass
class Step:
    """The launches of one step. Allocations from number `first` on were made within it."""

    calls: list[Call]
    first: int


@dataclass
class Fault:
    """Raise `error` at an operation with `at` (file:function, or a part of it) among the callers.

    `after` such operations pass; `times` of them fail. What is `lost` fails for good, whatever is called.
    """

    error: Callable[[], Exception]
    at: str = ""
    after: int = 0
    times: int = 1
    lost: bool = False
    struck: int = 0

    def strikes(self) -> bool:
        """Whether the operation that is called now fails."""
        if self.lost and self.struck:
            return True
        if self.struck >= self.times or not (self.at == "" or any(self.at in one for one in _places())):
            return False
        self.after -= 1
        self.struck += self.after < 0
        return self.after < 0


@dataclass
class Record:
    """What was seen: waits by (kind, place in our code), launched operations by name.

    `calls` has each launch in order. `faults` are raised.
    """

    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    launches: Counter[str] = field(default_factory=Counter)
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    allocations: dict[int, int] = field(default_factory=dict)  # number of each, by the address of its memory
    made: int = 0  # allocations so far
    _cut: tuple[int, int] = (0, 0)

    def wait(self, kind: str) -> None:
        """The host waits for the device here, and so for all copies on the current stream."""
        self.meet()
        self.waits[kind, place()] += 1
        _land(stream_of().copies)

    def meet(self) -> None:
        """Raise the fault that is set for the operation that is called now."""
        for fault in self.faults:
            if fault.strikes():
                raise fault.error()

    def launch(self, call: Call) -> None:
        """Something is launched here."""
        self.launches[call.name] += 1
        self.calls.append(call._replace(place=place()))

    def cut(self) -> Step:
        """The launches since the last cut."""
        calls, made = self._cut
        self._cut = len(self.calls), self.made
        return Step(self.calls[calls:], made)

    def clear(self) -> None:
        """Forget all that was seen."""
        self.waits.clear()
        self.launches.clear()
        self.calls.clear()
        self._cut = 0, self.made

    def reset(self) -> None:
        """Forget all, and what is set."""
        self.clear()
        self.faults.clear()
        self.allocations.clear()


seen = Record()  # of the one machine there is, as a dispatched operation knows no other way to it


def _places() -> Iterator[str]:
    """The frames of ours, innermost first: file and function."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith((f"{ROOT}/gencli/", f"{ROOT}/processors/")):
            yield f"{path.removeprefix(f'{ROOT}/')}:{frame.f_code.co_name}"
        frame = frame.f_back


def place() -> str:
    """The innermost frame of ours."""
    return next(_places(), "elsewhere")


@dataclass
class Card:
    """A GPU. `memory` bytes (None: no end), of which other processes have `others`."""

    memory: int | None = None
    others: int = 0
    allocated: int = 0
    reserved: int = 0
    held: dict[int, list[int]] = field(default_factory=dict)  # by address: bytes, tensors that use them

    @property
    def total(self) -> int:
        """The bytes of the card."""
        return 2**40 if self.memory is None else self.memory

    @property
    def free(self) -> int:
        """The bytes that no process has reserved."""
        return self.total - self.others - self.reserved

    def hold(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
        """Count the memory of a tensor as long as it lives. Raises OutOfMemoryError for too much."""
        if self.memory is None or not storage.nbytes():
            return
        address, size = storage.data_ptr(), storage.nbytes()
        if address not in self.held:
            if size > self.total - self.others - self.allocated:
                raise torch.OutOfMemoryError(
                    f"CUDA out of memory. Tried to allocate {size} bytes. GPU 0 has a total capacity of "
                    f"{self.total} bytes of which {self.free} bytes are free."
                )
            self.held[address] = [size, 0]
            self.allocated += size
            self.reserved = max(self.reserved, self.allocated)
        self.held[address][1] += 1
        weakref.finalize(tensor, self._drop, address).atexit = False

    def _drop(self, address: int) -> None:
        self.held[address][1] -= 1
        if not self.held[address][1]:
            self.allocated -= self.held.pop(address)[0]


@dataclass
class Copy:
    """Whether an asynchronous copy from or to pinned memory of the host may be under way."""

    kind: str = ""

    def start(self, kind: str, stream: "ShamStream") -> None:
        """It is under way on a stream."""
        self.kind = kind
        stream.copies.append(self)

    def check(self, *, is_written: bool) -> None:
        """Raise RuntimeError if what the host does now races with the copy."""
        if self.kind == "to the host":
            raise RuntimeError("The host uses pinned memory before the copy to it has been waited for.")
        if self.kind == "to the device" and is_written:
            raise RuntimeError("The host changes pinned memory before the copy from it has been waited for.")


def _land(copies: list[Copy]) -> None:
    """The copies have been waited for."""
    for one in copies:
        one.kind = ""
    copies.clear()


class ShamStream:
    """torch.cuda.Stream: runs at once; `copies` are those that nobody has waited for."""

    def __init__(self, device=None, priority=0):
        self.device, self.copies = full_device(device), []

    def wait_stream(self, other):
        self.copies += other.copies

    def wait_event(self, event):
        self.copies += event.copies

    def record_event(self, event=None):
        event = event or ShamEvent()
        event.record(self)
        return event

    def synchronize(self):
        _wait("stream", self.copies)

    def query(self):
        _land(self.copies)
        return True


class ShamEvent:
    """torch.cuda.Event: its wait is a wait of the host, and covers the copies before it on its stream."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
        self.copies = []

    def record(self, stream=None):
        self.copies = list((stream or stream_of()).copies)

    def wait(self, stream=None):
        (stream or stream_of()).wait_event(self)

    def synchronize(self):
        _wait("event", self.copies)

    def query(self):
        _land(self.copies)
        return True

    def elapsed_time(self, other):
        return 1.0


def _wait(kind, copies):
    """The host waits for these copies."""
    seen.meet()
    seen.waits[kind, place()] += 1
    _land(copies)


@dataclass
class _Here:
    """The cards, the current one, and the current stream of each."""

    cards: list[Card] = field(default_factory=lambda: [Card()])
    current: int = 0
    streams: dict[int, ShamStream] = field(default_factory=dict)

    def reset(self, cards: Iterable[Card]) -> None:
        """Another machine."""
        self.cards, self.current = [*cards], 0
        self.streams.clear()


here = _Here()


def full_device(device=None) -> torch.device:
    """The device of a name, a number or nothing, with its number."""
    if device is None or isinstance(device, int):
        return torch.device("cuda", here.current if device is None else device)
    found = torch.device(device)
    return found if found.index is not None else torch.device("cuda", here.current)


def stream_of(device=None) -> ShamStream:
    """The current stream of a device, by default of the current one."""
    where = full_device(device)
    return here.streams.setdefault(where.index, ShamStream(where))


@contextmanager
def _stream(stream):
    before, here.streams[stream.device.index] = stream_of(stream.device), stream
    current, here.current = here.current, stream.device.index
    try:
        yield
    finally:
        here.streams[stream.device.index], here.current = before, current


@contextmanager
def _current(device):
    before, here.current = here.current, full_device(device).index
    try:
        yield
    finally:
        here.current = before


def _card(device=None) -> Card:
    seen.meet()
    return here.cards[full_device(device).index]


def _synchronize(device=None):
    _wait("synchronize", [copy for stream in here.streams.values() for copy in stream.copies])


def _empty_cache():
    seen.meet()
    for card in here.cards:
        card.reserved = card.allocated


def _properties(device=None):
    return SimpleNamespace(
        name="Sham", total_memory=_card(device).total, major=9, minor=0, multi_processor_count=132
    )


def patches() -> dict[str, object]:
    """What stands in for names of torch.cuda."""
    return {
        "_lazy_init": lambda: None,
        "is_available": lambda: bool(here.cards),
        "device_count": lambda: len(here.cards),
        "current_device": lambda: here.current,
        "set_device": lambda device: setattr(here, "current", full_device(device).index),
        "device": _current,
        "get_device_properties": _properties,
        "get_device_name": lambda device=None: _properties(device).name,
        "get_device_capability": lambda device=None: (9, 0),
        "mem_get_info": lambda device=None: (_card(device).free, _card(device).total),
        "memory_allocated": lambda device=None: _card(device).allocated,
        "memory_reserved": lambda device=None: _card(device).reserved,
        "empty_cache": _empty_cache,
        "synchronize": _synchronize,
        "Event": ShamEvent,
        "Stream": ShamStream,
        "stream": _stream,
        "current_stream": stream_of,
        "default_stream": lambda device=None: ShamStream(device),
        # What is drawn there is drawn on the CPU, so its generator is the device's too.
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
    }


def differences(before: Step, after: Step) -> list[str]:
    """What differs between the launches of two steps, by place in our code; a CUDA graph needs none.

    Memory that was allocated within a step may be another one in the next: a graph keeps its own.
    """
    names = [[call.name for call in step.calls] for step in (before, after)]
    found = []
    for kind, start, end, begin, stop in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        if kind != "equal":
            places = [call.place for call in (*before.calls[start:end], *after.calls[begin:stop])]
            found += [f"{place}: other operations" for place in places]
            continue
        for old, new in zip(before.calls[start:end], after.calls[begin:stop], strict=True):
            what = [
                "shape" if old.shapes != new.shapes else "",
                "value" if old.values != new.values else "",
                "address" if _addresses(old, before) != _addresses(new, after) else "",
            ]
            found += [f"{new.place}: {new.name}, {one}" for one in what if one]
    return sorted({*found})


def _addresses(call: Call, step: Step) -> list[tuple[int, int]]:
    """The addresses of a launch; memory of the step itself has none."""
    return [(0 if number > step.first else number, place) for number, place in call.addresses]

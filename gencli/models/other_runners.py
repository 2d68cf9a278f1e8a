"""Runners of their own kind: one model over several processes, a draft model on a CUDA stream of its own,
and the fake bigram model of the tests. Of several processes only the leader has an engine: it
broadcasts every call to its runner, and each follower makes the same call on its part of the model, so
that a clock, a signal or a file in one process cannot make them diverge.
"""

from __future__ import annotations

import atexit
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from gencli.core.request import StepPlan
from gencli.errors import ModelError
from gencli.models.kv.lane_buffers import LaneLengths, fed_to
from gencli.models.model_runner import Inner, ModelRunner, ModelSpec
from processors.graphs import upload_ints

_Call = tuple[str, tuple[Any, ...]]
_TIMEOUT = timedelta(days=365)  # a chat may wait for its next turn


class Leader:
    """Runner of the first process. Broadcasts every call to the others before making it."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner, self._group = runner, dist.new_group(backend="gloo", timeout=_TIMEOUT)
        atexit.register(self.close)

    @property
    def spec(self) -> ModelSpec:
        return self._runner.spec

    def forward(self, plan: StepPlan) -> Tensor:
        self._broadcast("forward", plan)
        return self._runner.forward(plan)

    def truncate(self, lane: int, length: int) -> None:
        self._broadcast("truncate", lane, length)
        self._runner.truncate(lane, length)

    def fork(self, source: int, target: int) -> None:
        self._broadcast("fork", source, target)
        self._runner.fork(source, target)

    def release(self, lane: int) -> None:
        self._broadcast("release", lane)
        self._runner.release(lane)

    def free_cache(self) -> None:
        self._broadcast("free_cache")
        self._runner.free_cache()

    def close(self) -> None:
        """End the other processes."""
        with suppress(RuntimeError):  # they have ended already
            self._broadcast("close")
            dist.destroy_process_group()

    def _broadcast(self, name: str, *arguments: Any) -> None:
        dist.broadcast_object_list([(name, arguments)], src=0, group=self._group)


def follow(runner: ModelRunner) -> None:
    """Make the leader's calls on `runner` until it closes. Raises ModelError if the leader has died."""
    group = dist.new_group(backend="gloo", timeout=_TIMEOUT)
    while True:
        calls: list[_Call | None] = [None]
        try:
            dist.broadcast_object_list(calls, src=0, group=group)
        except RuntimeError as error:
            raise ModelError("The first process is gone") from error
        assert calls[0] is not None
        name, arguments = calls[0]
        if name == "close":
            dist.destroy_process_group()
            return
        with suppress(ModelError), torch.inference_mode():  # the leader reports the error
            getattr(runner, name)(*arguments)


class Queue(Protocol):
    """An ordered queue of device work that runs concurrently with the device's other work."""

    def begin(self) -> AbstractContextManager[None]:
        """Enqueue the work of this context here, after all work that the current stream already has."""

    def publish(self, result: Tensor) -> None:
        """Make the current stream wait until `result`, which this queue computes, is ready."""


class CudaQueue:
    """A CUDA stream. Memory of tensors that it allocates is reused on this stream only."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def begin(self) -> Iterator[None]:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield

    def publish(self, result: Tensor) -> None:
        other = torch.cuda.current_stream(self._device)
        other.wait_stream(self._stream)
        result.record_stream(other)


class SideStreamRunner:
    """A runner whose KV lanes are only read and written in one queue.

    The current stream waits for logits only. A forward pass without wanted rows has none, so prompts are
    read concurrently with the next work. The two models must not share state that a forward pass changes.
    """

    def __init__(self, runner: ModelRunner, queue: Queue) -> None:
        self._runner, self._queue = runner, queue

    @property
    def spec(self) -> ModelSpec:
        return self._runner.spec

    def forward(self, plan: StepPlan) -> Tensor:
        with self._queue.begin():
            logits = self._runner.forward(plan)
        if plan.num_rows:
            self._queue.publish(logits)
        return logits

    def truncate(self, lane: int, length: int) -> None:
        with self._queue.begin():
            self._runner.truncate(lane, length)

    def fork(self, source: int, target: int) -> None:
        with self._queue.begin():
            self._runner.fork(source, target)

    def release(self, lane: int) -> None:
        with self._queue.begin():
            self._runner.release(lane)

    def free_cache(self) -> None:
        with self._queue.begin():
            self._runner.free_cache()


def run_on_side_stream(runner: ModelRunner) -> ModelRunner:
    """Return the runner on a CUDA stream of its own; unchanged on a device without streams."""
    device = runner.spec.device
    return SideStreamRunner(runner, CudaQueue(device)) if device.type == "cuda" else runner


CONTEXT = 1024  # tokens

_LOW_32 = 0xFFFFFFFF


def _mix(words: Tensor) -> Tensor:
    for _ in range(2):
        words = ((words ^ (words >> 16)) * 0x045D9F3B) & _LOW_32
    return words ^ (words >> 16)


@lru_cache(4)
def _bell_table(vocab_size: int, seed: int) -> Tensor:
    """Return sums of four hashed uniforms [V, V], with mean 0 and standard deviation 1."""
    cells = torch.arange(vocab_size * vocab_size).view(vocab_size, vocab_size)
    key = _mix(torch.tensor(seed & _LOW_32))
    total = torch.zeros(vocab_size, vocab_size)
    for _ in range(4):
        key = _mix(key + 1)
        total += (_mix(cells ^ key) >> 8).float() / 2**24
    return (total - 2.0) * 3**0.5


class FakeRunner:
    """A bigram model with a seeded table, for tests, docs and examples.

    The logits of a position are row `t` of `table` [V, V] (float32), where t is the token fed there. So text
    does not depend on batch, chunks, drafts or lanes. The table is hashed from `seed`, bit-equal on every
    machine. The last hidden state of a position is that row too. `scale` is the standard deviation of the
    logits. A step that feeds more than `memory_lanes` lanes raises MemoryError. The contract of ModelRunner
    is checked (ContractError).
    """

    def __init__(
        self,
        vocab_size: int = 258,
        seed: int = 0,
        *,
        scale: float = 2.0,
        context: int = CONTEXT,
        max_lanes: int = 64,
        eos_ids: tuple[int, ...] = (),
        memory_lanes: int | None = None,
        device: torch.device = torch.device("cpu"),
    ) -> None:
        self._memory_lanes = memory_lanes
        self.table = (_bell_table(vocab_size, seed) * scale).to(device, non_blocking=True)
        self._lengths = LaneLengths(max_lanes=max_lanes, context=context, num_ids=vocab_size)
        self._spec = ModelSpec(
            name=f"fake:{vocab_size}:{seed}",
            vocab_size=vocab_size,
            context=context,
            device=device,
            dtype=torch.float32,
            eos_ids=eos_ids,
            hidden=vocab_size,
            can_run_ahead=True,
        )

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    def length(self, lane: int) -> int:
        return self._lengths[lane]

    def forward(self, plan: StepPlan) -> Tensor:
        fed = [token for feed in plan.feeds for token in feed.tokens[len(feed.tokens) - feed.num_logits :]]
        return self._feed(plan, upload_ints(fed, self._spec.device))

    def forward_ahead(self, plan: StepPlan, ids: Tensor) -> Tensor:
        return self._feed(plan, ids)

    def forward_layers(
        self,
        plan: StepPlan,
        layers: Iterable[int] = (),
        lanes: Collection[int] = (),
        taps: Collection[int] = (),
    ) -> tuple[Tensor, Inner]:
        """As `forward`; return also the states of these lanes, the same at any tap. It has no layers."""
        logits, fed = self.forward(plan), [token for feed in plan.feeds for token in feed.tokens]
        ids = [fed[index] for index in fed_to(lanes, plan.feeds)]
        states = self.table.index_select(0, upload_ints(ids, self._spec.device))
        return logits, Inner(lambda layer: self.table[:0], dict.fromkeys(taps, states))

    def _feed(self, plan: StepPlan, ids: Tensor) -> Tensor:
        """Count the tokens of the plan; return the logits behind the tokens `ids`."""
        self._lengths.check(plan)
        if self._memory_lanes is not None and len(plan.feeds) > self._memory_lanes:
            raise MemoryError(f"The fake model has memory for {self._memory_lanes} lanes.")
        logits = self.table.index_select(0, ids)
        self._lengths.advance(plan)
        return logits

    def truncate(self, lane: int, length: int) -> None:
        self._lengths.truncate(lane, length)

    def fork(self, source: int, target: int) -> None:
        self._lengths.fork(source, target)

    def release(self, lane: int) -> None:
        self._lengths.release(lane)

    def free_cache(self) -> None:
        """No-op: a lane is only a length."""

"""A bigram model: the logits after a token are a row of one table."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache

import torch
from torch import Tensor

from gencli.core.step import StepPlan, fed_to
from gencli.models.base import Inner, ModelSpec
from gencli.models.kv.lengths import LaneLengths
from processors.upload import upload_ints

__all__ = ["CONTEXT", "FakeRunner"]

CONTEXT = 1024  # tokens

_LOW_32 = 0xFFFFFFFF


def _mix(words: Tensor) -> Tensor:
    """Scramble 32-bit words held in int64, element by element."""
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
            has_states=True,
            can_run_ahead=True,
        )

    @property
    def spec(self) -> ModelSpec:
        """Properties of the table."""
        return self._spec

    def length(self, lane: int) -> int:
        """Number of tokens the lane holds."""
        return self._lengths[lane]

    def forward(self, plan: StepPlan) -> Tensor:
        """Feed the plan; return the wanted logits [plan.num_rows, V] in feed order."""
        fed = [token for feed in plan.feeds for token in feed.tokens[len(feed.tokens) - feed.num_logits :]]
        return self._feed(plan, upload_ints(fed, self._spec.device))

    def forward_ahead(self, plan: StepPlan, ids: Tensor) -> Tensor:
        """As `forward`, with the tokens `ids` [N] of the device in place of those of the feeds."""
        return self._feed(plan, ids)

    def forward_layers(
        self, plan: StepPlan, layers: Iterable[int], lanes: Collection[int] = ()
    ) -> tuple[Tensor, Inner]:
        """As `forward`; return also the last states of these lanes. It has no layers."""
        logits, fed = self.forward(plan), [token for feed in plan.feeds for token in feed.tokens]
        ids = [fed[place] for place in fed_to(lanes, plan.feeds)]
        states = self.table.index_select(0, upload_ints(ids, self._spec.device))
        return logits, Inner(lambda layer: self.table[:0], states)

    def _feed(self, plan: StepPlan, ids: Tensor) -> Tensor:
        """Count the tokens of the plan; return the logits behind the tokens `ids`."""
        self._lengths.check(plan)
        if self._memory_lanes is not None and len(plan.feeds) > self._memory_lanes:
            raise MemoryError(f"The fake model has memory for {self._memory_lanes} lanes.")
        logits = self.table.index_select(0, ids)
        self._lengths.advance(plan)
        return logits

    def truncate(self, lane: int, length: int) -> None:
        """Truncate the lane to its first `length` tokens."""
        self._lengths.truncate(lane, length)

    def fork(self, source: int, target: int) -> None:
        """Copy lane `source` to lane `target`."""
        self._lengths.fork(source, target)

    def release(self, lane: int) -> None:
        """Empty the lane."""
        self._lengths.release(lane)

    def free_cache(self) -> None:
        """No-op: a lane is only a length."""

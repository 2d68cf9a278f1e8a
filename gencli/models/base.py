"""The one seam between the engine and a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gencli.core.step import StepPlan
from gencli.models.device import is_batch_invariant

__all__ = ["ModelRunner", "ModelSpec"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What the engine has to know about a model.

    `vocab_size` is the width of the logits (V), which may exceed the tokenizer's vocabulary; `context`
    the most tokens a lane can hold. `eos_ids` are those of the model's generation_config. Where
    `can_rollback` is false, truncate() cannot shorten a lane: no drafts for such a model. `dtype_reason`
    says why the dtype was taken (for statistics); `notices` are said once on stderr. `rope_switches` are the
    lengths (tokens) beyond which a long-rope model takes other rotary factors: keys and values of a shorter
    text are of no use to a longer one, and the runner reads such a lane anew.
    """

    name: str
    vocab_size: int
    context: int
    device: torch.device
    dtype: torch.dtype
    eos_ids: tuple[int, ...] = ()
    can_rollback: bool = True
    dtype_reason: str = ""
    notices: tuple[str, ...] = ()
    rope_switches: tuple[int, ...] = ()

    def limit(self, length: int) -> int:
        """How long a text of `length` tokens can become before its lane is full or has to be read anew."""
        return min((self.context, *(switch for switch in self.rope_switches if switch >= length)))

    @property
    def is_batch_invariant(self) -> bool:
        """Whether a text does not depend on what is computed beside it, in this number format."""
        return is_batch_invariant(self.dtype, self.device)


class ModelRunner(Protocol):
    """Owns the weights and the KV lanes; nothing else touches either.

    A lane is an integer in 0..max_lanes-1 and is empty until it is first fed.
    """

    @property
    def spec(self) -> ModelSpec:
        """The loaded model's fixed properties."""
        ...

    def forward(self, plan: StepPlan) -> Tensor:
        """Feed every lane of the plan; return the wanted logits [plan.num_rows, V] in feed order.

        Logits are in the model's dtype, on its device, and fresh: the caller may keep or edit them.
        """
        ...

    def truncate(self, lane: int, length: int) -> None:
        """Forget all but the first `length` tokens of the lane (rejected drafts).

        Keeping all it holds always works; keeping less is a ModelError unless `spec.can_rollback`.
        """
        ...

    def fork(self, source: int, target: int) -> None:
        """Make `target` hold what `source` holds; the two are independent from then on."""
        ...

    def release(self, lane: int) -> None:
        """Empty the lane."""
        ...

    def free_cache(self) -> None:
        """Give back the memory that lanes held; all of them are empty."""
        ...

"""The interface between the engine and a model, the base class of runners on KV lanes, and the prefixes
that lanes copy from each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch import Tensor

from gencli.core.request import Feed, StepPlan, is_worth_copying, shared_length
from gencli.models.device import is_batch_invariant
from processors.graphs import Graphs

LAST = -1  # the tap of the states behind the final norm, which the vocabulary projection reads

EarlyLogits = Callable[[int], Tensor]  # from a number of layers to logits [R, V] of the states behind them


@dataclass(frozen=True, slots=True, eq=False)
class Inner:
    """Results of a forward pass beside its logits.

    `early` computes the logits of a layer when it is asked for: the vocabulary projection of the states
    before it, without the final norm. `taps` has the hidden states [S, H] at each tap that is asked for, of
    all tokens fed to the lanes that are asked for, in feed order. A tap is the number of layers before the
    states, as in `hidden_states` of transformers: 0 are the embeddings. LAST is behind the final norm.
    """

    early: EarlyLogits
    taps: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Properties of a loaded model.

    `vocab_size` is the width of the logits (V), which may exceed the tokenizer's vocabulary. `context` is the
    maximum number of tokens in a KV lane. `eos_ids` are those of the model's generation_config. If
    `can_rollback` is false, truncate() cannot shorten a lane, so the model takes no draft tokens.
    `dtype_reason` says why the dtype was chosen, `backend` what runs the model and why. `quantization` is the
    format of quantized weights, "" without. `kernels` are the names of the decoder's product kernels; if
    `has_invariant_rows`, the bits of a sequence do not depend on what is computed beside it. `kv_dtype` is
    the dtype of the KV cache; None if the model decides. `notices` are for the user. `rope_switches` are the
    lengths (tokens) beyond which a long-rope model uses other rotary factors; the runner recomputes a lane
    that crosses one. `num_layers` is 0 if the model gives no logits of its layers; `is_tied` says whether the
    vocabulary projection is the embedding. `hidden` is the width of its hidden states (H); 0 if it
    gives none.
    `graphs` run its decode steps; None where their shapes are not fixed. `no_graphs` says why none are
    recorded.
    `token_bytes` is about the temporary memory that a fed token takes in a pass, 0 if unknown.
    `can_run_ahead`: whether it takes tokens that the host does not know yet (see AheadRunner). `trees`:
    whether it takes trees of draft tokens (see TreeRunner).
    """

    name: str
    vocab_size: int
    context: int
    device: torch.device
    dtype: torch.dtype
    eos_ids: tuple[int, ...] = ()
    can_rollback: bool = True
    dtype_reason: str = ""
    backend: str = ""
    quantization: str = ""
    kernels: tuple[str, ...] = ()
    has_invariant_rows: bool = False
    kv_dtype: torch.dtype | None = None
    notices: tuple[str, ...] = ()
    rope_switches: tuple[int, ...] = ()
    num_layers: int = 0
    is_tied: bool = False
    hidden: int = 0
    graphs: Graphs | None = None
    no_graphs: str = ""
    token_bytes: int = 0
    can_run_ahead: bool = False
    trees: bool = False

    def limit(self, length: int) -> int:
        """Return the maximum length of a text of `length` tokens before its lane is full or is recomputed."""
        return min((self.context, *(switch for switch in self.rope_switches if switch >= length)))

    @property
    def is_batch_invariant(self) -> bool:
        """Whether a text does not depend on the other sequences of its batch, in this number format."""
        return self.has_invariant_rows or is_batch_invariant(self.dtype, self.device)


class ModelRunner(Protocol):
    """Owner of the weights and the KV lanes.

    A KV lane holds the keys and values of one sequence. It is an integer in 0..max_lanes-1, and empty until
    it is first fed.
    """

    @property
    def spec(self) -> ModelSpec:
        """Properties of the loaded model."""

    def forward(self, plan: StepPlan) -> Tensor:
        """Feed every lane of the plan; return the wanted logits [plan.num_rows, V] in feed order.

        Logits are a new tensor in the model's dtype, on its device; the caller may edit it.
        """

    def truncate(self, lane: int, length: int) -> None:
        """Truncate the lane to its first `length` tokens (rejected drafts).

        No-op if it holds no more. Raises ModelError if it does and not `spec.can_rollback`.
        """

    def fork(self, source: int, target: int) -> None:
        """Copy lane `source` to lane `target`; the two are independent afterwards."""

    def release(self, lane: int) -> None:
        """Empty the lane: its next feed starts at 0. No error if it is empty."""

    def free_cache(self) -> None:
        """Free the memory of the lanes; all of them must be empty."""


class LayeredRunner(ModelRunner, Protocol):
    """A ModelRunner that shows its states: its spec has `num_layers`, or `hidden`."""

    def forward_layers(
        self,
        plan: StepPlan,
        layers: Iterable[int] = (),
        lanes: Collection[int] = (),
        taps: Collection[int] = (),
    ) -> tuple[Tensor, Inner]:
        """As `forward`; return also the logits of these layers, and the states of these lanes at `taps`."""


class HeadedRunner(LayeredRunner, Protocol):
    """A LayeredRunner that a trained head can draft for: it lends its embedding and vocabulary projection."""

    def embed(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H] of `ids` [N], as the first layer reads them."""

    def project(self, states: Tensor) -> Tensor:
        """Return the logits [N, V] of states [N, H] behind the final norm."""


class TreeRunner(ModelRunner, Protocol):
    """A ModelRunner that takes feeds with `parents`: its spec has `trees`. Its lanes can roll back."""

    def compact(self, lane: int, start: int, nodes: Sequence[int]) -> None:
        """Keep a path of the tree behind token `start` of a lane: its nodes follow that token, nothing else.

        `nodes` are the indices of the path's nodes in the tree, in ascending order.
        """


class AheadRunner(LayeredRunner, Protocol):
    """A runner that takes tokens from the device: its spec has `can_run_ahead`. Its lanes can roll back."""

    def forward_ahead(self, plan: StepPlan, ids: Tensor) -> Tensor | None:
        """As `forward`, for a plan of one token a feed: `ids` [N] int64, in place of those of the feeds.

        The ids are on the model's device, and the host does not wait for them. None where the buffers of the
        lanes would have to grow. After that, and after an exception, the lanes hold what they held.
        """


def as_wide(logits: Tensor, width: int, device: torch.device) -> Tensor:
    """Return logits [R, W] as [R, width] on `device`, cut or padded with minus infinity."""
    logits = logits[:, :width].to(device)
    missing = width - logits.shape[1]
    return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf) if missing else logits


class Lanes(Protocol):
    """KV lanes of one model. The runner checks and counts their lengths."""

    can_rollback: bool

    def forward(self, feeds: tuple[Feed, ...]) -> Tensor:
        """Feed the lanes; return the wanted logits [R, V] in feed order."""

    def truncate(self, lane: int, length: int) -> None:
        """Truncate the lane to `length` tokens, fewer than it holds."""

    def fork(self, source: int, target: int) -> None:
        """Copy one lane to an empty one."""

    def release(self, lane: int) -> None:
        """Empty the lane."""

    def free_cache(self) -> None:
        """Free the memory of the lanes; all of them must be empty."""


class PrefixLane:
    """A KV lane and its `tokens`, which may be those of a text that has ended; `salt` is its request's."""

    def __init__(self, runner: ModelRunner, number: int) -> None:
        self.number, self.tokens, self.salt = number, list[int](), ""
        self._runner = runner

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Note that the model was fed more tokens."""
        self.tokens += tokens

    def truncate(self, length: int) -> None:
        """Truncate to the first `length` tokens; empty the lane if the model cannot roll back."""
        if length >= len(self.tokens):
            return
        if self._runner.spec.can_rollback:
            self._runner.truncate(self.number, length)
            del self.tokens[length:]
        else:
            self.clear()

    def compact(self, start: int, nodes: Sequence[int]) -> None:
        """Keep a path of the tree behind token `start` (see TreeRunner)."""
        cast(TreeRunner, self._runner).compact(self.number, start, nodes)
        self.tokens[start + 1 :] = [self.tokens[start + 1 + node] for node in nodes]

    def copy(self, other: PrefixLane, length: int) -> None:
        """Copy the first `length` tokens of another lane of the same model."""
        self._runner.fork(other.number, self.number)
        self.tokens = [*other.tokens]
        self.truncate(length)

    def clear(self) -> None:
        self._runner.release(self.number)
        self.tokens.clear()


class PrefixLanes:
    """The lanes of a companion model or a draft model, by number. Each serves the slot that it is named for.

    A lane keeps its tokens when its text ends, as a prefix cache. The target's lanes are chosen by the
    scheduler instead (see PrefixCache).
    """

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner
        self._lanes: dict[int, PrefixLane] = {}

    def __getitem__(self, number: int) -> PrefixLane:
        """Return a lane. Its first use empties it: another engine may have used the model."""
        if number not in self._lanes:
            self._lanes[number] = lane = PrefixLane(self.runner, number)
            lane.clear()
        return self._lanes[number]

    def reuse(self, lane: PrefixLane, text: Sequence[int], salt: str = "") -> None:
        """Leave the longest cached prefix of `text` in a lane: its own, or a copy of another lane's.

        Lanes of another salt share nothing.
        """
        wanted = [*text]
        kept = shared_length(lane.tokens, wanted) if lane.salt == salt else 0
        lane.salt = salt
        others = [other for other in self._lanes.values() if other is not lane and other.salt == salt]
        shared, best = max(
            (
                (shared_length(other.tokens, wanted), other)
                for other in (others if self.runner.spec.can_rollback else ())
            ),
            key=lambda pair: pair[0],
            default=(0, lane),
        )
        if shared > kept and is_worth_copying(shared, len(wanted)):
            lane.copy(best, shared)
        else:
            lane.truncate(kept)

    def clear(self) -> None:
        for lane in self._lanes.values():
            lane.clear()
        self._lanes.clear()

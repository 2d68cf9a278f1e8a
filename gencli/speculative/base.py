"""The drafter interface. A drafter only proposes draft tokens; the target model accepts or rejects them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, overload

from gencli.core.request import Request

if TYPE_CHECKING:
    from torch import Tensor

    from gencli.speculative.draft_sampler import DraftSampler

__all__ = ["DraftAsk", "Drafter", "Drawn", "Measured", "Text"]


class Text(Sequence[int]):
    """Prompt and output of a sample as one sequence: a live view, without a copy. Slices are tuples."""

    __slots__ = ("_output", "_prompt")

    def __init__(self, prompt: Sequence[int], output: Sequence[int] = ()) -> None:
        self._prompt, self._output = prompt, output

    def __len__(self) -> int:
        return len(self._prompt) + len(self._output)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[int, ...]: ...
    def __getitem__(self, place: int | slice) -> int | tuple[int, ...]:
        size = len(self._prompt)
        if isinstance(place, int):
            place = place + len(self) if place < 0 else place
            return self._prompt[place] if place < size else self._output[place - size]
        start, stop, step = place.indices(len(self))
        if step != 1:
            return tuple(self[i] for i in range(start, stop, step))
        return (*self._prompt[start:stop], *self._output[max(0, start - size) : max(0, stop - size)])


@dataclass(frozen=True, slots=True)
class DraftAsk:
    """A request for draft tokens in one slot: `tokens` are prompt and output, `most` >= 1 is the limit."""

    slot: int
    tokens: Sequence[int]
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class Drawn(Sequence[int]):
    """Draft tokens sampled from a distribution q, with q's logits, for rejection sampling.

    A plain sequence of draft tokens means q(token) = 1. For each of the `tokens`: its logits [V] float32 as
    the request's chain left them, and its probability under q.
    """

    tokens: tuple[int, ...]
    logits: tuple[Tensor, ...]
    probabilities: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[int, ...]: ...
    def __getitem__(self, place: int | slice) -> int | tuple[int, ...]:
        return self.tokens[place]


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurement of one step without prefill: `accepted` of `drafted` draft tokens in `lanes` texts.

    `seconds`: forward pass, sampling and verification by work_clock; drafting is not included.
    """

    lanes: int
    drafted: int
    accepted: int
    seconds: float


class Drafter:
    """Proposes draft tokens. State of a sample is indexed by the sample's slot.

    Between `admit` and `release` a slot belongs to one sample; each sample of a request has its own slot.
    `is_autoregressive`: one forward pass per draft token (a model); otherwise proposing k tokens costs about
    the same for any k.
    `is_reading`: the last call of `propose` also prefilled a text, a cost that occurs once per text.
    `notices`: lines for the user, shown once on stderr.
    """

    is_autoregressive: bool = False
    is_reading: bool = False
    notices: tuple[str, ...] = ()
    name: ClassVar[str] = ""  # of a plugin: what `draft` calls it

    def bind(self, chooser: DraftSampler) -> None:
        """Take the sampler that chooses from draft logits as the requests do. Called once, first of all."""

    def handles(self, request: Request) -> bool:
        """Whether it drafts for this request. `admit` is called only for requests that it handles."""
        return True

    def is_autoregressive_for(self, request: Request) -> bool:
        """Whether its drafts for this request cost one forward pass per token."""
        return self.is_autoregressive and self.handles(request)

    def admit(self, slot: int, request: Request) -> None:
        """A sample takes the slot; overwrite the state of the slot's previous sample."""

    def propose(self, asks: Sequence[DraftAsk]) -> Sequence[Sequence[int]]:
        """Propose 0 to `most` draft tokens for each ask, in the order of the asks.

        Where `Request.drafts_decide`, the drafts must depend on the request and its text alone. For requests
        verified by rejection, sampled drafts are returned as Drawn and use noise independent of the target's.
        """
        raise NotImplementedError

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        """Record that `accepted` of the `proposed` draft tokens were accepted. Called if `proposed` > 0."""

    def measure(self, step: Measured) -> None:
        """Record the cost of the step that followed the last `propose`, with or without drafts."""

    def release(self, slot: int) -> None:
        """The sample has left the slot, finished or interrupted."""

    def trim(self) -> None:
        """Free memory after out-of-memory. No slot is in use."""

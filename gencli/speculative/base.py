"""What a drafter is. It only proposes; what is accepted is the target's choice alone."""

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
    """Prompt and output of a sample as one sequence: a view that grows with them. Slices are tuples."""

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
    """How may the text in this slot go on? `tokens` are prompt and output, `most` >= 1 is the limit."""

    slot: int
    tokens: Sequence[int]
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class Drawn(Sequence[int]):
    """Drafts that were drawn with noise of their own, where a run that was not is certain.

    For each of the `tokens` the logits [V] float32 it was drawn from, as the draft's chain left them, and
    its probability there.
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
    """What a step took, drafting apart: `lanes` texts with `drafted` tokens in all, of which so many stand.

    `seconds` are those of feeding, choosing and verifying, as work_clock counts. Steps that read prompts are
    not measured.
    """

    lanes: int
    drafted: int
    accepted: int
    seconds: float


class Drafter:
    """Guesses how texts go on. What it keeps of a sample is indexed by the sample's slot.

    Between admit and release a slot is one sample's; samples of one request have a slot each. `passes` says
    that each draft costs as much as the one before it, where others cost about the same however many;
    `is_reading`, that the last proposals also took reading a text that will not be read again. `notices`
    are said once on stderr.
    """

    passes: bool = False
    is_reading: bool = False
    notices: tuple[str, ...] = ()
    name: ClassVar[str] = ""  # of a plugin: what --draft calls it

    def bind(self, chooser: DraftSampler) -> None:
        """Told once, before anything else: how the requests of an engine choose from logits."""

    def handles(self, request: Request) -> bool:
        """Whether it may have drafts for this request; of one that it does not handle it never hears."""
        return True

    def passes_for(self, request: Request) -> bool:
        """Whether this request may have drafts of it that cost a pass each."""
        return self.passes and self.handles(request)

    def admit(self, slot: int, request: Request) -> None:
        """A sample takes the slot; whatever an earlier one left there is overwritten."""

    def propose(self, asks: Sequence[DraftAsk]) -> Sequence[Sequence[int]]:
        """For each ask at most `most` tokens, in the order of the asks; none is a fine answer.

        For a request that `drafts_decide` the answer depends on the request and its text alone; drafts that
        were drawn come as Drawn if it is verified by rejection, and the draw is not the target's.
        """
        raise NotImplementedError

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        """Of the tokens proposed last, so many were accepted. Not called if none were."""

    def measure(self, step: Measured) -> None:
        """What the step took that the last proposals went into, whether there were any or not."""

    def release(self, slot: int) -> None:
        """The sample has left the slot, finished or interrupted."""

    def trim(self) -> None:
        """Give back what memory it can; no slot is anyone's."""

"""What a drafter is. It only proposes; what is accepted is the target's choice alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gencli.request import Request

__all__ = ["DraftAsk", "Drafter"]


@dataclass(frozen=True, slots=True)
class DraftAsk:
    """How may the text in this slot go on? `tokens` are prompt and output, `most` >= 1 is the limit."""

    slot: int
    tokens: tuple[int, ...]
    most: int


class Drafter:
    """Guesses how texts go on. What it keeps of a sample is indexed by the sample's slot.

    Between admit and release a slot is one sample's; samples of one request have a slot each.
    """

    def handles(self, request: Request) -> bool:
        """Whether it may have drafts for this request; of one that it does not handle it never hears."""
        return True

    def admit(self, slot: int, request: Request) -> None:
        """A sample takes the slot; whatever an earlier one left there is overwritten."""

    def propose(self, asks: Sequence[DraftAsk]) -> Sequence[Sequence[int]]:
        """For each ask at most `most` tokens, in the order of the asks; none is a fine answer."""
        raise NotImplementedError

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        """Of the tokens proposed last, so many were accepted. Not called if none were."""

    def release(self, slot: int) -> None:
        """The sample has left the slot, finished or interrupted."""

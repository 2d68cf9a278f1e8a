"""Where drafts come from. A drafter only proposes; what is accepted is the target's choice alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Drafter"]


class Drafter(Protocol):
    """Guesses how a text goes on."""

    def propose(self, tokens: Sequence[int], most: int) -> Sequence[int]:
        """At most `most` tokens that may follow these (prompt and output); none is a fine answer."""
        ...

"""Contrastive search of one request: its text so far, its candidate next tokens, their hidden states."""

from __future__ import annotations

from collections.abc import Sequence as Items

import torch
from torch import Tensor

from gencli.core.events import Event
from gencli.core.request import Contrastive
from gencli.engine.group import Group
from gencli.engine.sequence import Sequence
from gencli.text.text_stream import TextStream
from processors.contrastive import contrastive_scores, directions

__all__ = ["ContrastiveSearch", "Directions"]

_FIRST_ROWS = 256


class Directions:
    """Normalised hidden states [L, H] float32 of a text's tokens. The buffer doubles as the text grows."""

    def __init__(self) -> None:
        self._buffer, self._length = torch.empty(0, 0), 0

    @property
    def rows(self) -> Tensor:
        """Directions [L, H] of all tokens so far, in order."""
        return self._buffer[: self._length]

    def add(self, rows: Tensor) -> None:
        """Append the directions [N, H] of the next tokens."""
        length = self._length + len(rows)
        if length > len(self._buffer):
            grown = rows.new_empty(max(length, 2 * len(self._buffer), _FIRST_ROWS), rows.shape[1])
            if self._length:
                grown[: self._length] = self.rows
            self._buffer = grown
        self._buffer[self._length : length] = rows
        self._length = length

    def clear(self) -> None:
        """Drop all states and free their memory."""
        self._buffer, self._length = torch.empty(0, 0), 0


class ContrastiveSearch(Group):
    """Contrastive search, from a `root` that holds the prompt only.

    `text` has the chosen tokens. The members are the candidates: the text plus one token each, which the next
    step feeds. During prefill the text is the only member. A candidate that ends the text is fed too: its
    state decides whether it is chosen.
    """

    def __init__(self, root: Sequence) -> None:
        self.params = root.request.contrastive or Contrastive(0.0, 1)
        super().__init__(root, self.params.k)
        self.text = root
        self._before, self._fed = Directions(), dict[int, Tensor]()  # of the text; of candidates by slot
        self._probabilities = torch.empty(0, dtype=torch.float64)

    def feed(self, slot: int, states: Tensor) -> None:
        """Store the last hidden states [N, H] of the tokens that were fed to the member in a slot."""
        rows = directions(states)
        if self.members[0] is self.text:
            self._before.add(rows)
        else:
            self._fed[slot] = rows

    def choose(self) -> tuple[Tensor, Tensor]:
        """Return index [1] and score [1] of the best candidate, once the states of all are stored.

        Without candidates the text itself is the best.
        """
        if not self._fed:
            device = self._before.rows.device
            return torch.zeros(1, dtype=torch.int64, device=device), torch.zeros(1, device=device)
        states = torch.cat([self._fed[member.slot] for member in self.members])
        self._fed.clear()
        scores = contrastive_scores(self._probabilities, states, self._before.rows, self.params.alpha)
        best = scores.argmax(dim=0, keepdim=True)
        self._before.add(states.index_select(0, best))
        return best, scores.index_select(0, best)

    def take(self, best: int) -> Sequence:
        """Make the member with index `best` the text, and return it."""
        self.text = self.members[best]
        return self.text

    def branch(self, members: Items[Sequence], probabilities: Tensor) -> None:
        """Replace the members by these candidates, with `probabilities` [K] float64."""
        self.members, self._probabilities = [*members], probabilities

    def close(self, reason: str, matched: str | None = None) -> None:
        self.text.close(reason, matched)

    def drain(self, now: float, error: Exception | None = None) -> list[Event]:
        return self.text.drain(now, error)

    def restart(self, stream: TextStream) -> None:
        self.members, self.slots = self.members[:1], ()
        self.text = self.members[0]
        self.text.restart(stream)
        self._before.clear()
        self._fed.clear()

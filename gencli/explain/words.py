"""`Words`: a vocabulary that is a list of texts, for logits without a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Words"]


@dataclass(frozen=True)
class Words:
    """A vocabulary for stages and records: id i is the i-th text. Other texts have no ids."""

    texts: Sequence[str]

    @classmethod
    def numbered(cls, count: int) -> Words:
        """Return a vocabulary of `count` ids without texts, named by number."""
        return cls([f"#{number}" for number in range(count)])

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self.texts)

    @property
    def special_ids(self) -> frozenset[int]:
        """No ids are special."""
        return frozenset()

    @cached_property
    def token_bytes(self) -> Sequence[bytes]:
        """The texts in UTF-8."""
        return [text.encode() for text in self.texts]

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return [id] of the text; [] if the vocabulary lacks it."""
        return [self.texts.index(text)] if text in self.texts else []

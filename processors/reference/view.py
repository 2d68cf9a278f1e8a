"""What a twin may look at, and the few helpers that several share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from processors.base import Vocabulary

__all__ = ["HIGHEST", "LOWEST", "View", "exp_all", "finite", "masked", "ranking"]

HIGHEST = (2 - 2**-23) * 2.0**127  # of float32
LOWEST = -HIGHEST


@dataclass(frozen=True, slots=True)
class View:
    """One row: the request's prompt, its output with the drafts that the row sees, and the model's facts."""

    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    stop_ids: tuple[int, ...] = ()
    eos_ids: tuple[int, ...] = ()
    vocabulary: Vocabulary | None = None

    def token_id(self, key: int | str) -> int:
        """The id that a key names; a text has to be one token."""
        if isinstance(key, int):
            return key
        assert self.vocabulary is not None
        (token,) = self.vocabulary.encode(key, special=False)
        return token

    def text(self, tokens: Iterable[int]) -> bytes:
        """What the tokens spell."""
        assert self.vocabulary is not None
        known = self.vocabulary.token_bytes
        return b"".join(known[token] for token in tokens if token < len(known))


def masked(logits: list[float], ids: Iterable[int]) -> list[float]:
    """The logits with these ids forbidden."""
    gone = set(ids)
    return [-math.inf if token in gone else logit for token, logit in enumerate(logits)]


def ranking(logits: list[float]) -> list[int]:
    """Ids from the best to the worst; the lowest id wins a tie."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))


def exp_all(logits: list[float]) -> list[float]:
    """Weights proportional to the softmax; the largest is 1."""
    top = max(max(logits), LOWEST)
    return [math.exp(logit - top) for logit in logits]


def finite(old: float, new: float) -> float:
    """A legal token stays legal: its logit stops at the float32 limits. Masked stays masked."""
    return old if math.isinf(old) else min(max(new, LOWEST), HIGHEST)

"""`View`, the input of a twin besides the logits, and functions shared by twins."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from processors.base import Vocabulary

__all__ = ["HIGHEST", "LOWEST", "View", "exempt", "exp_all", "finite", "masked", "ranking"]

HIGHEST = (2 - 2**-23) * 2.0**127  # the largest float32
LOWEST = -HIGHEST


@dataclass(frozen=True, slots=True)
class View:
    """One row: prompt, output with the visible drafts, stop and end-of-text ids, vocabulary, seed.

    `earlier`: the rows of this step that saw fewer drafts, each with its logits and the draft after it.
    """

    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    stop_ids: tuple[int, ...] = ()
    eos_ids: tuple[int, ...] = ()
    vocabulary: Vocabulary | None = None
    seed: int = 0
    earlier: tuple[tuple[list[float], int], ...] = ()

    def token_id(self, key: int | str) -> int:
        """Return the id of a key: an id, or a text of one token."""
        if isinstance(key, int):
            return key
        assert self.vocabulary is not None
        (token,) = self.vocabulary.encode(key, special=False)
        return token

    def text(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes of the tokens."""
        assert self.vocabulary is not None
        known = self.vocabulary.token_bytes
        return b"".join(known[token] for token in tokens if token < len(known))


def exempt(keys: Iterable[int | str], view: View) -> set[int]:
    """Return the exempt ids: those of keywords, and ids listed one by one."""
    known = view.vocabulary.token_bytes if view.vocabulary else ()
    keywords: dict[int | str, Iterable[int]] = {
        "special": view.vocabulary.special_ids if view.vocabulary else (),
        "eos": view.eos_ids,
        "stop": (*view.eos_ids, *view.stop_ids),
        "newline": [token for token, data in enumerate(known) if b"\n" in data],
    }
    return {token for key in keys for token in (keywords[key] if key in keywords else [view.token_id(key)])}


def masked(logits: list[float], ids: Iterable[int]) -> list[float]:
    """Return the logits with these ids masked."""
    gone = set(ids)
    return [-math.inf if token in gone else logit for token, logit in enumerate(logits)]


def ranking(logits: list[float]) -> list[int]:
    """Return the ids by descending logit; the lowest id wins a tie."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))


def exp_all(logits: list[float]) -> list[float]:
    """Return exp(x - max(x)), proportional to the softmax."""
    top = max(max(logits), LOWEST)
    return [math.exp(logit - top) for logit in logits]


def finite(old: float, new: float) -> float:
    """Return `new` clamped to finite float32; an infinite `old` logit is kept."""
    return old if math.isinf(old) else min(max(new, LOWEST), HIGHEST)

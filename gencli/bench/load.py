"""The load of a batch measurement: random prompts and output lengths, uniform between bounds."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["Ask", "make_load"]

_PROMPT, _OUTPUT = (10, 400), (10, 200)  # tokens, bounds included
_FIRST_WORD = 300  # lower ids are bytes and JSON punctuation of MadeTokenizer


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: prompt ids, and the number of output tokens."""

    prompt: tuple[int, ...]
    max_tokens: int


def make_load(count: int, *, vocab_size: int, prefix: int = 0, seed: int = 0) -> tuple[Ask, ...]:
    """Return `count` requests of random words; their prompts begin with the same `prefix` tokens."""
    draw = random.Random(seed)

    def words(length: int) -> tuple[int, ...]:
        return tuple(draw.choices(range(_FIRST_WORD, vocab_size - 1), k=length))

    sizes = [(draw.randint(*_PROMPT), draw.randint(*_OUTPUT)) for _ in range(count)]
    shared = words(prefix)
    return tuple(Ask(shared + words(prompt), output) for prompt, output in sizes)

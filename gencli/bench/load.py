"""What a batch is measured with: prompts and numbers of output tokens, spread evenly between bounds."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["Ask", "make_load"]

_PROMPT, _OUTPUT = (10, 400), (10, 200)  # tokens, both ends included
_FIRST_WORD = 300  # ids below are bytes and signs of the made-up tokenizer


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: the ids of its prompt, and how many tokens are to follow."""

    prompt: tuple[int, ...]
    max_tokens: int


def make_load(count: int, *, vocab_size: int, prefix: int = 0, seed: int = 0) -> tuple[Ask, ...]:
    """`count` requests of random words, with `prefix` tokens that are the same for all before the prompts."""
    draw = random.Random(seed)

    def words(length: int) -> tuple[int, ...]:
        return tuple(draw.choices(range(_FIRST_WORD, vocab_size - 1), k=length))

    sizes = [(draw.randint(*_PROMPT), draw.randint(*_OUTPUT)) for _ in range(count)]
    shared = words(prefix)
    return tuple(Ask(shared + words(prompt), output) for prompt, output in sizes)

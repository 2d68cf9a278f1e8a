"""Trial steps in a compiled grammar, to reject a grammar whose tokens are too slow."""

from __future__ import annotations

import random
import time

import torch

from processors.errors import GrammarError
from processors.grammar.backends.base import Ask, Backend, Grammar
from processors.grammar.backends.byte_vocabulary import GrammarVocabulary
from processors.grammar.backends.slow_tokens import MAX_STEP_SECONDS

__all__ = ["TRIAL", "try_steps"]

TRIAL = "3"  # version of the trial and of what is made of a schema, part of the cache key
_WALKS, _STEPS = 4, 16


def try_steps(backend: Backend, grammar: Grammar, vocabulary: GrammarVocabulary) -> None:
    """Raise GrammarError if a step in a few random texts takes more than MAX_STEP_SECONDS of CPU time.

    Examples: xgrammar compiles ((a{0,100}){0,100}){0,100} at once, but then each letter takes twice the time
    of the letter before; for (a?){5000}a{5000} it takes seconds to find the forced text.
    """
    rng = random.Random(0)
    mask = torch.zeros(1, vocabulary.words, dtype=torch.int32)
    for _ in range(_WALKS):
        matcher = grammar.matcher()
        for step in range(_STEPS):
            begin = time.process_time()
            backend.fill([Ask(matcher, (), 0)], mask)
            matcher.forced()
            seconds = time.process_time() - begin
            words = (mask[0] & vocabulary.text_mask).nonzero().view(-1).tolist()
            if not words:
                break
            word = rng.choice(words)
            bits = int(mask[0, word]) & int(vocabulary.text_mask[word])
            token = rng.choice([32 * word + bit for bit in range(32) if bits >> bit & 1])
            begin = time.process_time()
            matcher.accept(token)
            seconds += time.process_time() - begin
            if seconds > MAX_STEP_SECONDS:
                raise GrammarError(
                    f"{backend.name} takes {seconds:.1f} s of CPU time for token {step + 1} of a text in "
                    f"this grammar; the limit is {MAX_STEP_SECONDS:g} s."
                )

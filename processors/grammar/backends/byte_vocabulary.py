"""`GrammarVocabulary`: the vocabulary for grammar back ends, with one entry per logit."""

from __future__ import annotations

from itertools import islice, repeat

import torch

from processors.base import Env
from processors.errors import GrammarError

__all__ = ["GrammarVocabulary"]


class GrammarVocabulary:
    """The bytes of each id; b"" for special and end-of-text ids, and for ids that the tokenizer lacks."""

    def __init__(self, env: Env) -> None:
        if env.vocabulary is None:
            raise GrammarError("A grammar works on texts, but there is no tokenizer.")
        known, ends = env.vocabulary.token_bytes, frozenset(env.eos_ids)
        padding = repeat(b"", env.vocab_size - len(known))
        self.token_bytes = tuple(
            b"" if token in ends else data
            for token, data in enumerate((*islice(known, env.vocab_size), *padding))
        )
        self.words = -(-env.vocab_size // 32)
        flags = torch.zeros(self.words, 32, dtype=torch.int64)
        flags.view(-1)[: env.vocab_size] = torch.tensor([bool(data) for data in self.token_bytes])
        self.text_mask = (flags << torch.arange(32)).sum(-1).to(torch.int32)  # [ceil(V / 32)]

    def is_text(self, token: int) -> bool:
        """Whether the id adds bytes to a text."""
        return 0 <= token < len(self.token_bytes) and bool(self.token_bytes[token])

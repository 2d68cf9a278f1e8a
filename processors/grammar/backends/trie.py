"""The back end of `choice`: a finite list of texts, in plain Python. Reference for the other back ends."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from processors.base import Env
from processors.constraint import Constraint
from processors.errors import GrammarError
from processors.grammar.backends.base import Ask, Matcher
from processors.grammar.backends.bits import pack

__all__ = ["TrieBackend", "TrieGrammar", "TrieMatcher"]

_LIMIT = 1 << 22  # characters of all texts together
_REMEMBERED = 4096  # prefixes with cached allowed ids


class TrieBackend:
    """Keeps the texts as sorted bytes; texts with a common prefix are neighbours."""

    name = "trie"
    version = "1"
    kinds = frozenset({"choice"})

    def __init__(self, env: Env) -> None:
        if env.vocabulary is None:
            raise GrammarError("A grammar works on texts, but there is no tokenizer.")
        self.tokens: dict[bytes, list[int]] = {}
        self.token_bytes = env.vocabulary.token_bytes
        for token, data in enumerate(self.token_bytes):
            if data:
                self.tokens.setdefault(data, []).append(token)
        self.longest = max(map(len, self.tokens), default=0)

    def compile(self, constraint: Constraint) -> TrieGrammar:
        """Compile a JSON list of texts."""
        texts = json.loads(constraint.text)
        if not texts or not all(isinstance(text, str) for text in texts):
            raise GrammarError("A choice is a list of at least one text.")
        if sum(map(len, texts)) > _LIMIT:
            raise GrammarError(f"The choices have more than {_LIMIT} characters together.")
        return TrieGrammar(sorted({text.encode() for text in texts}), self)

    def fill(self, asks: Sequence[Ask], masks: Tensor) -> list[list[bool]]:
        return [self._fill(ask, masks) for ask in asks]

    def _fill(self, ask: Ask, masks: Tensor) -> list[bool]:
        matcher = ask.matcher
        assert isinstance(matcher, TrieMatcher)
        walk, complete = matcher.fork(), []
        for row, token in enumerate((*ask.drafts, -1), start=ask.row):
            masks[row] = pack(torch.tensor(walk.allowed(), dtype=torch.int64), masks.shape[1])
            complete.append(walk.is_complete())
            if token < 0 or not walk.accept(token):
                break
        return complete


class TrieGrammar:
    """A sorted list of texts."""

    warnings: tuple[str, ...] = ()

    def __init__(self, texts: list[bytes], backend: TrieBackend) -> None:
        self.texts, self.backend = texts, backend
        self.allowed = lru_cache(maxsize=_REMEMBERED)(self._allowed)

    def matcher(self) -> TrieMatcher:
        """Return a matcher at the start."""
        return TrieMatcher(self)

    def remaining(self, prefix: bytes) -> list[bytes]:
        """Return the rest of each text that starts with the prefix."""
        start = bisect_left(self.texts, prefix)
        # UTF-8 has no byte 0xff, so this sorts after every text with the prefix.
        end = bisect_left(self.texts, prefix + b"\xff", lo=start)
        return [text[len(prefix) :] for text in self.texts[start:end]]

    def _allowed(self, prefix: bytes) -> tuple[int, ...]:
        longest, known = self.backend.longest, self.backend.tokens
        begun = {rest[:n] for rest in self.remaining(prefix) for n in range(1, min(len(rest), longest) + 1)}
        return tuple(token for data in begun if data in known for token in known[data])


class TrieMatcher(Matcher):
    """Matcher with the bytes so far, and the offsets at which tokens began."""

    def __init__(self, grammar: TrieGrammar, text: bytes = b"", ends: tuple[int, ...] = ()) -> None:
        self._grammar, self._text, self._ends = grammar, text, list(ends)

    def allowed(self) -> tuple[int, ...]:
        """Return the ids that may come next."""
        return self._grammar.allowed(self._text)

    def accept(self, token: int) -> bool:
        known = self._grammar.backend.token_bytes
        data = known[token] if 0 <= token < len(known) else b""
        if not data or not self._grammar.remaining(self._text + data):
            return False
        self._ends.append(len(self._text))
        self._text += data
        return True

    def rollback(self, count: int) -> None:
        if count:
            self._text = self._text[: self._ends[-count]]
            del self._ends[-count:]

    def is_complete(self) -> bool:
        return b"" in self._grammar.remaining(self._text)[:1]

    def is_over(self) -> bool:
        return self._grammar.remaining(self._text) == [b""]

    def limit(self) -> str:
        return ""

    def forced(self) -> bytes:
        """Return the common prefix of the remaining texts."""
        rests = self._grammar.remaining(self._text)
        first, last = rests[0], rests[-1]
        same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        return first[:same]

    def fork(self) -> TrieMatcher:
        return TrieMatcher(self._grammar, self._text, tuple(self._ends))

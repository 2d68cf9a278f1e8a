"""Grammar back ends: protocols, vocabulary, bit masks over tokens, and the back end of `choice`.

A back end compiles constraints to grammars and computes masks of next tokens; to add one, implement these
protocols in one file and add a line to BACKENDS. A mask is rows of 32-bit words: bit i of word w is token
32 w + i.
"""

from __future__ import annotations

import functools
import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import islice, repeat
from typing import Protocol, cast

import torch
from torch import Tensor

from processors.base import Env, Vocabulary
from processors.errors import GrammarError
from processors.graphs import upload
from processors.kernels.operations import blocked_bits
from processors.request_values import Constraint

BACKENDS: dict[str, str] = {
    "trie": "processors.grammar.grammar_backend:TrieBackend",
    "xgrammar": "processors.grammar.xgrammar:XGrammarBackend",
    "llguidance": "processors.grammar.llguidance:LLGuidanceBackend",
}


class Matcher(Protocol):
    """The state of one output in a grammar. It accepts text tokens only, never an end-of-text token."""

    def accept(self, token: int) -> bool:
        """Advance by a token; return False, and change nothing, if the grammar forbids it."""

    def accept_first(self, tokens: Iterable[int]) -> int | None:
        """Advance by the first of the tokens that the grammar allows and return it; None if there is none."""
        return next((token for token in tokens if self.accept(token)), None)

    def rollback(self, count: int) -> None:
        """Undo the last `count` accepted tokens."""

    def is_complete(self) -> bool:
        """Whether the output may end here."""

    def is_over(self) -> bool:
        """Whether the output must end here: it is complete and no token may follow."""

    def forced(self) -> bytes:
        """Return the bytes that must come next; b"" if there is a choice or the output may end."""

    def limit(self) -> str:
        """Return the limit of the back end that leaves no token here; "" if none does."""

    def fork(self) -> Matcher:
        """Return an independent copy."""


class CompiledGrammar(Protocol):
    """A compiled grammar, immutable and shared by its requests; `warnings` of the library, one line each."""

    warnings: tuple[str, ...]

    def matcher(self) -> Matcher:
        """Return a matcher at the start."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """Masks requested for one matcher: after 0, 1, 2, ... of the drafts, written to masks[row:]."""

    matcher: Matcher
    drafts: tuple[int, ...]
    row: int


class Backend(Protocol):
    """One grammar engine, for one vocabulary."""

    name: str
    version: str
    kinds: frozenset[str]

    def __init__(self, env: Env) -> None: ...

    def compile(self, constraint: Constraint) -> CompiledGrammar:
        """Compile a constraint. GrammarError if it is wrong or too large."""

    def fill(self, asks: Sequence[Ask], masks: Tensor) -> list[list[bool]]:
        """Write bit masks [rows, ceil(V / 32)] int32 on the CPU; bit i of word w is token 32 w + i.

        An ask gets one row for each legal prefix of its drafts; rows after an illegal draft are not written.
        Return for each ask a list with a flag per legal prefix: whether the text may end there. The bits of
        end-of-text ids are undefined. The matchers are left unchanged.
        """


def load_backend(name: str, env: Env) -> Backend:
    """Import and return a back end for this vocabulary. GrammarError for an unknown name."""
    if name not in BACKENDS:
        raise GrammarError(f"There is no grammar back end {name!r}. Known are: {', '.join(BACKENDS)}.")
    module, _, attribute = BACKENDS[name].partition(":")
    return cast(Backend, getattr(import_module(module), attribute)(env))


def vocabulary_of(env: Env) -> Vocabulary:
    """Return the vocabulary. GrammarError without one."""
    if env.vocabulary is None:
        raise GrammarError("A grammar works on texts, but there is no tokenizer.")
    return env.vocabulary


class GrammarVocabulary:
    """The bytes of each id; b"" for special and end-of-text ids, and for ids that the tokenizer lacks."""

    def __init__(self, env: Env) -> None:
        token_bytes, ends = vocabulary_of(env).token_bytes, frozenset(env.eos_ids)
        padding = repeat(b"", env.vocab_size - len(token_bytes))
        self.token_bytes = tuple(
            b"" if token in ends else data
            for token, data in enumerate((*islice(token_bytes, env.vocab_size), *padding))
        )
        self.words = words(env.vocab_size)
        text_ids = torch.tensor([bool(data) for data in self.token_bytes]).nonzero().flatten()
        self.text_mask = pack(text_ids, self.words)  # [ceil(V / 32)]

    def is_text(self, token: int) -> bool:
        return 0 <= token < len(self.token_bytes) and bool(self.token_bytes[token])


def words(width: int) -> int:
    """Return the number of 32-bit words for `width` ids."""
    return (width + 31) // 32


def set_ids(masks: Tensor, ids: Sequence[int], allowed: Tensor) -> None:
    """Allow `ids` in the rows of masks [R, W] where `allowed` [R] is True, forbid them in the others."""
    for token in ids:
        word, bit = token // 32, torch.tensor(1 << token % 32, dtype=torch.int64).to(torch.int32)
        column = masks[:, word]
        masks[:, word] = torch.where(allowed, column | bit, column & ~bit)


def allows(mask: Tensor, token: int) -> bool:
    return bool(int(mask[token // 32]) >> token % 32 & 1)


def allow_only(mask: Tensor, token: int) -> None:
    """Forbid all ids but this one in a mask [W], in place."""
    mask.zero_()
    mask[token // 32] = torch.tensor(1 << token % 32, dtype=torch.int64).to(torch.int32)


def allowed_ids(mask: Tensor, width: int) -> Tensor:
    """Return the ids below `width` that a mask [W] allows, ascending, [n] int64."""
    octets = mask.view(torch.uint8).to(torch.int32)
    blocked = blocked_bits(mask.device).index_select(0, octets).view(torch.bool)
    return (~blocked[:width]).nonzero().flatten()


def forbid(mask: Tensor, ids: Tensor) -> None:
    """Forbid these ids [n] int64 in a mask [W], in place."""
    mask &= ~pack(ids, len(mask))


def pack(ids: Tensor, size: int) -> Tensor:
    """Return a mask [size] that allows exactly these ids [n] int64."""
    flags = torch.zeros(size, 32, dtype=torch.int64)
    flags.view(-1)[ids] = 1
    return (flags << torch.arange(32)).sum(-1).to(torch.int32)


def count_allowed(masks: Tensor) -> Tensor:
    """Return the number of ids that each row of masks [R, W] int32 allows, [R] int64."""
    counts = _ones(masks.device).index_select(0, masks.view(torch.uint8).flatten().to(torch.int32))
    return counts.view(len(masks), 4 * masks.shape[1]).sum(-1)


@functools.cache
def _ones(device: torch.device) -> Tensor:
    return upload([octet.bit_count() for octet in range(256)], device)


class NativeBackend(Backend, Protocol):
    """A back end of a library that fills the masks of many matchers in one threaded call."""

    vocabulary: GrammarVocabulary

    def compile_native(self, constraint: Constraint) -> CompiledGrammar:
        """Compile a constraint of a known kind; any exception means that the library refuses it."""

    def reason(self, error: Exception) -> str:
        """Return what the library says of a constraint that it refuses."""

    def fill_native(self, matchers: list[tuple[Matcher, int]], masks: Tensor) -> None:
        """Fill one mask for each (matcher, row)."""

    def compile(self, constraint: Constraint) -> CompiledGrammar:
        """Compile a constraint. GrammarError if it is wrong, over a limit, or allows no text.

        A library may overflow the stack and cannot be interrupted, so GrammarCompiler runs this in a child
        process first.
        """
        if constraint.kind not in self.kinds:
            raise GrammarError(f"{self.name} knows no grammars of the kind {constraint.kind!r}.")
        try:
            grammar = self.compile_native(constraint)
        except Exception as error:
            reason = f"{self.name} cannot compile this {constraint.kind}: {self.reason(error)}"
            raise GrammarError(reason) from error
        mask, may_end = mask_of(self, grammar.matcher(), self.vocabulary.words)
        if not may_end and not (mask & self.vocabulary.text_mask).any():
            raise GrammarError(f"No text satisfies this {constraint.kind} (as {self.name} understands it).")
        return grammar

    def fill(self, asks: Sequence[Ask], masks: Tensor) -> list[list[bool]]:
        """Fill the masks, one call of the library for each position of the drafts."""
        complete: list[list[bool]] = [[] for _ in asks]
        alive = list(range(len(asks)))
        try:
            while alive:
                self.fill_native([(asks[i].matcher, asks[i].row + len(complete[i])) for i in alive], masks)
                for i in alive:
                    complete[i].append(asks[i].matcher.is_complete())
                ahead = [(i, asks[i].drafts[len(complete[i]) - 1 :]) for i in alive]
                alive = [i for i, drafts in ahead if drafts and asks[i].matcher.accept(drafts[0])]
        finally:
            for ask, ends in zip(asks, complete, strict=True):
                if len(ends) > 1:
                    ask.matcher.rollback(len(ends) - 1)
        return complete


def mask_of(backend: Backend, matcher: Matcher, size: int) -> tuple[Tensor, bool]:
    """Return the mask [size] of a matcher, and whether the text may end here."""
    mask = torch.zeros(1, size, dtype=torch.int32)
    ((may_end,),) = backend.fill([Ask(matcher, (), 0)], mask)
    return mask[0], may_end


_LIMIT = 1 << 22  # characters of all texts together
_REMEMBERED = 4096  # prefixes with cached allowed ids


class TrieBackend:
    """Keeps the texts as sorted bytes; texts with a common prefix are neighbours."""

    name = "trie"
    version = "1"
    kinds = frozenset({"choice"})

    def __init__(self, env: Env) -> None:
        self.tokens: dict[bytes, list[int]] = {}
        self.token_bytes = vocabulary_of(env).token_bytes
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
        complete: list[list[bool]] = [[] for _ in asks]
        for ask, flags in zip(asks, complete, strict=True):
            walk = cast(TrieMatcher, ask.matcher).fork()
            for row, token in enumerate((*ask.drafts, -1), start=ask.row):
                masks[row] = pack(torch.tensor(walk.allowed(), dtype=torch.int64), masks.shape[1])
                flags.append(walk.is_complete())
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
        return TrieMatcher(self)

    def remaining(self, prefix: bytes) -> list[bytes]:
        start = bisect_left(self.texts, prefix)
        # UTF-8 has no byte 0xff, so this sorts after every text with the prefix.
        end = bisect_left(self.texts, prefix + b"\xff", lo=start)
        return [text[len(prefix) :] for text in self.texts[start:end]]

    def _allowed(self, prefix: bytes) -> tuple[int, ...]:
        longest, tokens = self.backend.longest, self.backend.tokens
        begun = {left[:n] for left in self.remaining(prefix) for n in range(1, min(len(left), longest) + 1)}
        return tuple(token for data in begun if data in tokens for token in tokens[data])


class TrieMatcher(Matcher):
    """Matcher with the bytes so far, and the offsets at which tokens began."""

    def __init__(self, grammar: TrieGrammar, text: bytes = b"", ends: tuple[int, ...] = ()) -> None:
        self._grammar, self._text, self._ends = grammar, text, list(ends)

    def allowed(self) -> tuple[int, ...]:
        return self._grammar.allowed(self._text)

    def accept(self, token: int) -> bool:
        token_bytes = self._grammar.backend.token_bytes
        data = token_bytes[token] if 0 <= token < len(token_bytes) else b""
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

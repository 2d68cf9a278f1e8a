"""Protocols of a grammar back end: it compiles constraints to grammars and computes masks of next tokens.

To add a back end, implement these protocols in one file and add a line to BACKENDS.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from torch import Tensor

from processors.base import Env
from processors.constraint import Constraint
from processors.errors import GrammarError

__all__ = ["BACKENDS", "Ask", "Backend", "Grammar", "Matcher", "load_backend"]

BACKENDS: dict[str, str] = {
    "trie": "processors.grammar.backends.trie:TrieBackend",
    "xgrammar": "processors.grammar.backends.xgrammar:XGrammarBackend",
    "llguidance": "processors.grammar.backends.llguidance:LLGuidanceBackend",
}


class Matcher(Protocol):
    """The state of one output in a grammar. It accepts text tokens only, never an end-of-text token."""

    def accept(self, token: int) -> bool:
        """Advance by a token; return False, and change nothing, if the grammar forbids it."""
        ...

    def accept_first(self, tokens: Iterable[int]) -> int | None:
        """Advance by the first of the tokens that the grammar allows and return it; None if there is none."""
        return next((token for token in tokens if self.accept(token)), None)

    def rollback(self, count: int) -> None:
        """Undo the last `count` accepted tokens."""
        ...

    def is_complete(self) -> bool:
        """Whether the output may end here."""
        ...

    def is_over(self) -> bool:
        """Whether the output must end here: it is complete and no token may follow."""
        ...

    def forced(self) -> bytes:
        """Return the bytes that must come next; b"" if there is a choice or the output may end."""
        ...

    def limit(self) -> str:
        """Return the limit of the back end that leaves no token here; "" if none does."""
        ...

    def fork(self) -> Matcher:
        """Return an independent copy."""
        ...


class Grammar(Protocol):
    """A compiled grammar: immutable, shared by all requests that use it.

    `warnings` are the warnings of the library, one line each.
    """

    warnings: tuple[str, ...]

    def matcher(self) -> Matcher:
        """Return a matcher at the start."""
        ...

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

    def compile(self, constraint: Constraint) -> Grammar:
        """Compile a constraint. GrammarError if it is wrong or too large."""
        ...

    def fill(self, asks: Sequence[Ask], masks: Tensor) -> list[list[bool]]:
        """Write bit masks [rows, ceil(V / 32)] int32 on the CPU; bit i of word w is token 32 w + i.

        An ask gets one row for each legal prefix of its drafts; rows after an illegal draft are not written.
        Return for each ask a list with a flag per legal prefix: whether the text may end there. The bits of
        end-of-text ids are undefined. The matchers are left unchanged.
        """
        ...


def load_backend(name: str, env: Env) -> Backend:
    """Import and return a back end for this vocabulary. GrammarError for an unknown name."""
    if name not in BACKENDS:
        raise GrammarError(f"There is no grammar back end {name!r}. Known are: {', '.join(BACKENDS)}.")
    module, _, attribute = BACKENDS[name].partition(":")
    return cast(Backend, getattr(import_module(module), attribute)(env))

"""What a grammar back end is: it compiles texts to grammars, and tells which tokens may come next.

A third back end is one file that has these four classes, and one line in BACKENDS.
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
    """How far one output has come in a grammar. It is given tokens of text only, never the end of it."""

    def accept(self, token: int) -> bool:
        """Go one token on; False, and nothing has changed, if the grammar does not allow it."""
        ...

    def accept_first(self, tokens: Iterable[int]) -> int | None:
        """Go on by the first of the tokens that the grammar allows, and say which; None without one."""
        return next((token for token in tokens if self.accept(token)), None)

    def rollback(self, count: int) -> None:
        """Take the last `count` accepted tokens back."""
        ...

    def is_complete(self) -> bool:
        """Whether the output may end here."""
        ...

    def is_over(self) -> bool:
        """Whether the output has to end here: it is complete and no token may follow."""
        ...

    def forced(self) -> bytes:
        """What has to come next, if there is no choice; b"" if there is one, or if the end is near."""
        ...

    def limit(self) -> str:
        """The limit of the back end that leaves no token to choose from here; "" if none does."""
        ...

    def fork(self) -> Matcher:
        """An independent copy."""
        ...


class Grammar(Protocol):
    """A compiled grammar. It never changes and is shared by all requests that have it.

    `warnings` are what the library had to say of it, a line each.
    """

    warnings: tuple[str, ...]

    def matcher(self) -> Matcher:
        """A matcher at the start."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """Which tokens may follow after none, one, two ... of the drafts? The answers go to masks[row:]."""

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
        """The grammar of a constraint. GrammarError if it is wrong or too large."""
        ...

    def fill(self, asks: Sequence[Ask], masks: Tensor) -> list[list[bool]]:
        """Write bit masks [rows, ceil(V / 32)] int32 (CPU; bit i of word w is token 32 w + i).

        One row for each legal prefix of an ask's drafts: rows behind a draft that the grammar does not
        allow are left as they are. Returns for each ask, prefix by prefix, whether the text may end
        there; so the list is one longer than the number of legal drafts. The bits of ids that end a
        text are not to be relied on. The matchers are afterwards what they were.
        """
        ...


def load_backend(name: str, env: Env) -> Backend:
    """A back end for this vocabulary; its library is imported now. GrammarError for an unknown name."""
    if name not in BACKENDS:
        raise GrammarError(f"There is no grammar back end {name!r}. Known are: {', '.join(BACKENDS)}.")
    module, _, attribute = BACKENDS[name].partition(":")
    return cast(Backend, getattr(import_module(module), attribute)(env))

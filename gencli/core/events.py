"""What leaves the engine: frozen values, and nothing else does."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gencli.structured.verdict import ValidationResult
    from processors.base import Document

__all__ = ["Candidate", "Drafted", "Error", "Event", "Finish", "Reading", "Timings", "Token"]

_FEW = 3  # plain steps without which nothing is said about what they take


@dataclass(frozen=True, slots=True)
class Token:
    """Text that has become certain for one sample of a request; it may be empty."""

    request: str
    sample: int
    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """A long prompt is about to be read on: `done` of its `total` tokens are in the KV cache."""

    request: str
    sample: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds: from submission to the first token, and the part spent before / after it."""

    prefill: float
    decode: float
    first_token: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text among which a choice was made. `logprob` is the sum over its tokens, `score` what decided."""

    text: str
    score: float
    logprob: float
    completion_tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class Drafted:
    """What drafts did for a sample, or for several: how many were proposed and accepted, by position.

    `forwards` counts the steps that chose its tokens. Seconds are its share of what drafting and of what
    the steps took, those that read prompts left out. In these steps `timed` tokens were chosen; `plain` of
    them had no drafts and took `plain_seconds`. `held` names the stage that no draft may run ahead of.
    """

    forwards: int = 0
    proposed: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    timed: int = 0
    plain: int = 0
    plain_seconds: float = 0.0
    held: str = ""

    @property
    def speedup(self) -> float | None:
        """Tokens a second against those of the plain steps; None where too few were plain, or all."""
        seconds = self.draft_seconds + self.verify_seconds
        if self.plain < _FEW or not self.plain_seconds or not sum(self.proposed):
            return None
        return self.timed / seconds * self.plain_seconds / self.plain

    def __add__(self, other: Drafted) -> Drafted:
        return Drafted(
            self.forwards + other.forwards,
            _sums(self.proposed, other.proposed),
            _sums(self.accepted, other.accepted),
            self.draft_seconds + other.draft_seconds,
            self.verify_seconds + other.verify_seconds,
            self.timed + other.timed,
            self.plain + other.plain,
            self.plain_seconds + other.plain_seconds,
            self.held or other.held,
        )


def _sums(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0))


@dataclass(frozen=True, slots=True)
class Finish:
    """A sample is complete. `text` is all of it: the joined Token texts.

    `cached_tokens` of the prompt were in memory, from the session before or from a prompt that begins alike;
    the rest was read.
    `document` says where the text stands in its grammar (processors.base.GrammarStatus); None without one.
    `verdict` is what the text was found to be, where something was asked of it; `text` is then the result
    alone, without the thinking before it. `drafted` is None where no drafts were wanted. `candidates` are all
    texts that it was chosen from, the best first, and `score` is its own; without a choice there are none,
    and `logprob` is not known.
    """

    request: str
    sample: int
    text: str
    reason: str  # eos | stop | length | grammar | loop | interrupted
    matched: str | int | None
    offset: int | None
    prompt_tokens: int
    completion_tokens: int
    timings: Timings
    cached_tokens: int = 0
    document: Document | None = None
    verdict: ValidationResult | None = None
    logprob: float = 0.0
    score: float | None = None
    candidates: tuple[Candidate, ...] = ()
    drafted: Drafted | None = None


@dataclass(frozen=True, slots=True)
class Error:
    """A sample failed; its neighbours go on. `text` is what it had until then."""

    request: str
    sample: int
    type: str
    message: str
    text: str


Event = Token | Reading | Finish | Error

"""What leaves the engine: frozen values, and nothing else does."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gencli.structured.verdict import Verdict
    from processors.base import Document

__all__ = ["Candidate", "Drafted", "Error", "Event", "Finish", "Timings", "Token"]


@dataclass(frozen=True, slots=True)
class Token:
    """Text that has become certain for one sample of a request; it may be empty."""

    request: str
    sample: int
    text: str
    ids: tuple[int, ...]


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
    the steps took, those that read prompts left out. `held` names the stage that no draft may run ahead of.
    """

    forwards: int = 0
    proposed: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    held: str = ""

    def __add__(self, other: Drafted) -> Drafted:
        return Drafted(
            self.forwards + other.forwards,
            _sums(self.proposed, other.proposed),
            _sums(self.accepted, other.accepted),
            self.draft_seconds + other.draft_seconds,
            self.verify_seconds + other.verify_seconds,
            self.held or other.held,
        )


def _sums(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0))


@dataclass(frozen=True, slots=True)
class Finish:
    """A sample is complete. `text` is all of it: the joined Token texts.

    `cached_tokens` of the prompt were in memory, from the session before or from a prompt that begins alike;
    the rest was read.
    `document` says where the text stands in its grammar (see processors.base.Followed); None without one.
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
    verdict: Verdict | None = None
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


Event = Token | Finish | Error

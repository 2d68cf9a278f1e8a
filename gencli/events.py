"""What leaves the engine: frozen values, and nothing else does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gencli.structured.verdict import Verdict
    from processors.base import Document

__all__ = ["Candidate", "Error", "Event", "Finish", "Timings", "Token"]


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
class Finish:
    """A sample is complete. `text` is all of it: the joined Token texts.

    `cached_tokens` of the prompt were in memory, from the session before or from a prompt that begins alike;
    the rest was read.
    `document` says where the text stands in its grammar (see processors.base.Followed); None without one.
    `verdict` is what the text was found to be, where something was asked of it; `text` is then the result
    alone, without the thinking before it. `candidates` are all texts that it was chosen from, the best
    first, and `score` is its own; without a choice there are none, and `logprob` is not known.
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


@dataclass(frozen=True, slots=True)
class Error:
    """A sample failed; its neighbours go on. `text` is what it had until then."""

    request: str
    sample: int
    type: str
    message: str
    text: str


Event = Token | Finish | Error

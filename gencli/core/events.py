"""Events, the engine's only output: frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from processors.base import Document
    from processors.row_view import RowView

_MIN_PLAIN = 3  # plain steps; with fewer the speedup is unknown


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token id at a position, with its log-probabilities (natural logarithm, float32).

    `logprob`: log-softmax of the model's own logits, before guidance and stages. `processed`: log-softmax
    after guidance and all stages, -inf for a masked id; equal to `logprob` for a prompt token. `banned_by`:
    cause that masked the id: a stage, "guidance" or "model"; "" for an allowed id.
    """

    id: int
    logprob: float
    processed: float
    banned_by: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at the position of one token, for a request that asks for K alternatives.

    `rank`, `processed_rank`: 1 for the most likely id, ties by lowest id. `top`: the K most likely ids under
    the model, best first. `processed_top`: the same after the stages, without masked ids.
    """

    chosen: Alternative
    rank: int
    processed_rank: int
    top: tuple[Alternative, ...] = ()
    processed_top: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Token:
    """New final text of one sample, and its token ids; the text may be empty.

    `logprobs` and `views` (explanations) have one entry for each id if the request asks for them, else none.
    """

    request: str
    sample: int
    text: str
    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    views: tuple[RowView, ...] = ()


def joined(events: Sequence[Token]) -> Token:
    """Return the tokens of a sample, at least one, as one event."""
    return Token(
        events[0].request,
        events[0].sample,
        "".join(event.text for event in events),
        tuple(token for event in events for token in event.ids),
        tuple(entry for event in events for entry in event.logprobs),
        tuple(view for event in events for view in event.views),
    )


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Log-probabilities of a prompt's tokens, before the first Token of its request.

    `scores` has an entry for each prompt position; None for position 0, which has no context, and for
    positions before the request's `score_from`. The event belongs to sample 0.
    """

    request: str
    scores: tuple[TokenLogprobs | None, ...]
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """Prefill progress of a long prompt: `done` of `total` tokens are in the KV cache."""

    request: str
    sample: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds: `queue` from submission to the slot, then `prefill` up to the first token, then `decode`.

    `first_token` is the time from submission to the first token.
    """

    prefill: float
    decode: float
    first_token: float
    queue: float = 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """One text of a beam search or best-of choice. `logprob`: sum over its tokens; `score`: ranking value."""

    text: str
    score: float
    logprob: float
    completion_tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class Drafted:
    """Draft statistics of one or several samples.

    `forwards`: steps that chose tokens of the sample. `proposed`, `accepted`: draft tokens by position.
    `draft_seconds`, `verify_seconds`: the sample's share of drafting and of the steps without prefill.
    `timed`: tokens chosen in the steps without prefill. `plain`, `plain_seconds`: number and time of plain
    steps, which have neither prefill nor drafts. `held`: name of the stage that excludes drafts, or "".
    `nodes`: draft tokens of trees, of which `proposed` has those of the path that was verified.
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
    nodes: int = 0

    @property
    def speedup(self) -> float | None:
        """Tokens per second relative to plain steps; None with too few plain steps or without drafts."""
        seconds = self.draft_seconds + self.verify_seconds
        if self.plain < _MIN_PLAIN or not self.plain_seconds or not sum(self.proposed):
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
            self.nodes + other.nodes,
        )


def _sums(*counts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(*counts, fillvalue=0)))


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """The faults of a text (() if it is valid), its value if it is JSON, and the text to write.

    `thinking` is the text before the result; None if no marker was requested. `attempts`: number of texts
    drawn.
    """

    faults: tuple[str, ...] = ()
    value: Any = None
    written: str = ""
    thinking: str | None = None
    attempts: int = 1

    @property
    def is_valid(self) -> bool:
        return not self.faults


@dataclass(frozen=True, slots=True)
class Finish:
    """A sample is complete. `text` is the whole output: the joined Token texts.

    `cached_tokens`: prompt tokens found in the prefix cache or in the session's lane. `document`: position in
    the grammar (see processors.base.GrammarStatus); None without a grammar. `verdict`: result of validating
    the text against the requested structure; None if none was requested. With a verdict, `text` is the result
    alone, without the reasoning before it. `drafted`: draft statistics; None without drafts. `candidates`:
    all texts of a beam search or best-of choice, best first; `score` is that of this text. For other requests
    `candidates` is empty, `score` is None and `logprob` is not computed. `more`: the number of samples after
    this one that end alike; like this one they had not begun (see `by_sample`). `closing_tokens`: how many of
    the last tokens complete a cut document; no forward pass chose them.
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
    more: int = 0
    closing_tokens: int = 0

    @property
    def decoded_tokens(self) -> int:
        """The number of tokens that forward passes gave, those of forced text among them."""
        return self.completion_tokens - self.closing_tokens

    @property
    def is_late(self) -> bool:
        """Whether `max_time` passed before the first token."""
        return self.matched == "max_time" and not self.completion_tokens


@dataclass(frozen=True, slots=True)
class Error:
    """A sample failed; other samples continue. `text` is its output so far, of `completion_tokens` tokens.

    `cause`: the exception of a plug-in, for its traceback.
    """

    request: str
    sample: int
    type: str
    message: str
    text: str
    completion_tokens: int = 0
    cause: BaseException | None = field(default=None, compare=False, repr=False)


Event = Token | Reading | PromptScores | Finish | Error


def by_sample(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events with a Finish of its own for each sample that had not begun."""
    for event in events:
        if isinstance(event, Finish) and event.more:
            samples = range(event.sample, event.sample + event.more + 1)
            yield from (replace(event, sample=sample, more=0) for sample in samples)
        else:
            yield event

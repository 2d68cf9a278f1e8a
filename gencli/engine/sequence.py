"""The mutable state of one sample during generation, with the scores of its prompt; the group of a request's
samples; the feeds of a step; and the prefix cache, which copies common prompt prefixes between KV lanes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gencli.core.events import Drafted, Error, Event, Finish, Timings, Token, TokenLogprobs
from gencli.core.request import Feed, Kind, Match, Prefixes, Request, Tokens, is_worth_copying, rope_factors
from gencli.errors import GencliError, GenerationError
from gencli.text.text_stream import Delta, FinishReason, TextStream
from processors.base import Document, GrammarStatus
from processors.row_view import RowView


class Taken(NamedTuple):
    """Tokens appended to a sequence; `forced`: under a grammar, whether each was the only legal one."""

    ids: tuple[int, ...]
    forced: tuple[bool, ...] = ()


@dataclass(slots=True, eq=False)
class Sequence:
    """One sample of a request: its state in the engine and its output.

    Its text changes only by its methods. `num_computed_tokens`: tokens in its KV lane, drafts included,
    computed with the rotary factors `rope` (see rope_factors). The last committed token is never included:
    the next step feeds it. `context`: maximum number of prompt and output tokens. `group`: the group that it
    belongs to, if any. Times are seconds of a monotonic clock. `decode_cost`: tokens fed by decoding over all
    lanes, including drafts that must not be cut (see span_cost). `scoring`: scores of the prompt. `held`:
    tokens chosen after `output` that may be taken back (see gencli.engine.rewind). `needs_states`: whether
    hidden states of the whole prompt decide the text.
    """

    request: Request
    sample: int
    seed: int
    stream: TextStream
    submitted: float
    context: int
    group: Group | None = None
    scoring: PromptScoring | None = None
    needs_states: bool = False
    number: int = 0  # order of submission
    slot: int = -1
    num_computed_tokens: int = 0
    rope: int = 0
    num_cached_tokens: int = 0  # prompt tokens whose KV was found in a lane, of the same or another slot
    output: list[int] = field(default_factory=list)
    finish: FinishReason | None = None
    cut: str = ""  # the limit that was reached, until the text ends
    document: Document | None = None  # state of the document in its grammar; None without a grammar
    started: float | None = None
    first_token: float | None = None
    logprob: float = 0.0  # sum over `output`, computed for beam search and best-of
    drafted: Drafted | None = None
    num_closing: int = 0  # of the last tokens, which complete a cut document
    held: tuple[int, ...] = ()
    prompt: tuple[int, ...] = field(init=False)
    drafts_decide: bool = field(init=False)
    decode_cost: int = field(init=False)
    _longest: int = field(init=False)  # length of prompt and output at which a limit is reached
    _logprobs: list[TokenLogprobs] = field(default_factory=list)  # of `output`, if requested
    _views: list[RowView] = field(default_factory=list)  # explanations of tokens that are in no event yet
    _texts: list[str] = field(default_factory=list)
    _emitted: tuple[int, int] = (0, 0)  # number of entries of `output` and `_texts` that are in events

    def __post_init__(self) -> None:
        request = self.request
        self.prompt, self.drafts_decide = request.prompt_ids, request.drafts_decide
        self.decode_cost = request.num_lanes * (1 + (request.num_drafts or 0) * self.drafts_decide)
        max_tokens = request.limits.max_tokens if request.given is None else len(request.given)
        self._longest = min(self.context, len(self.prompt) + max_tokens)

    def __len__(self) -> int:
        return len(self.prompt) + len(self.output)

    def tokens(self, start: int = 0, end: int | None = None) -> tuple[int, ...]:
        """Return tokens `start` to `end` of prompt and output."""
        size, end = len(self.prompt), len(self) if end is None else end
        return (*self.prompt[start:end], *self.output[max(0, start - size) : max(0, end - size)])

    @property
    def num_slots(self) -> int:
        """Number of slots needed to run: of its group, or 1."""
        return self.group.width if self.group else 1

    @property
    def reusable(self) -> tuple[int, ...]:
        """The part of the prompt whose keys and values may come from a cache, always without the last token.

        Empty where hidden states of the prompt decide the text, because a cache has none.
        """
        if self.needs_states:
            return ()
        return self.prompt[: -1 if self.scoring is None else self.scoring.first_read]

    @property
    def kind(self) -> Kind:
        """Rotary factors and cache salt: sequences share keys and values only if both are equal."""
        return self.rope, self.request.salt

    @property
    def lag(self) -> int:
        """Number of tokens that its KV lane does not hold yet."""
        return len(self.prompt) + len(self.output) - self.num_computed_tokens

    @property
    def known(self) -> tuple[int, ...]:
        """The next ids of a given output or prefix, whatever the chain chooses; () for a drawn output."""
        ids = self.request.prefix if self.request.given is None else self.request.given
        return ids[len(self.output) :] if ids else ()

    @property
    def is_in_prefix(self) -> bool:
        """Whether its next token belongs to the prefix that the output begins with."""
        return len(self.output) < len(self.request.prefix)

    @property
    def room(self) -> int:
        """Number of tokens until the text reaches a limit."""
        return self._longest - len(self)

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots that it occupies: its own, or none while it waits."""
        return (self.slot,) if self.slot >= 0 else ()

    @property
    def unit(self) -> Sequence | Group:
        """The group of the sequence, which ends as a whole, or the sequence itself."""
        return self.group or self

    def place(self, slot: int, num_cached: int = 0, rope: int = 0) -> None:
        """Take a slot whose KV lane holds the first `num_cached` tokens."""
        self.slot, self.rope = slot, rope
        self.reuse(num_cached)

    def reuse(self, num_cached: int) -> None:
        """Set the cached prefix of the prompt that the lane holds."""
        self.num_computed_tokens = self.num_cached_tokens = num_cached

    def rollback(self) -> bool:
        """Discard rejected drafts; return whether the lane holds any, so that it has to be truncated."""
        is_long = self.num_computed_tokens > len(self) - 1
        self.num_computed_tokens = min(self.num_computed_tokens, len(self) - 1)
        return is_long

    def recompute(self, rope: int) -> None:
        self.rope, self.num_computed_tokens = rope, 0

    def record_drafts(self, drafted: Drafted) -> None:
        self.drafted = drafted if self.drafted is None else self.drafted + drafted

    def hold(self, tokens: tuple[int, ...]) -> None:
        """Set the held tokens, which are fed as drafts."""
        if self.held != tokens:
            self.decode_cost += self.request.num_lanes * (len(tokens) - len(self.held))
            self.held = tokens

    def fork(self) -> Sequence:
        """Return an independent copy: text, tokens, log-probabilities and explanations so far."""
        texts, views, logprobs = self._texts.copy(), self._views.copy(), self._logprobs.copy()
        stream, output = self.stream.fork(), self.output.copy()
        return replace(self, stream=stream, output=output, _logprobs=logprobs, _views=views, _texts=texts)

    def note(self, entries: Iterable[TokenLogprobs]) -> None:
        self._logprobs += entries

    def explain(self, views: Iterable[RowView]) -> None:
        self._views += views

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        """Log-probabilities of `output`; empty if the request does not ask for them."""
        return tuple(self._logprobs)

    def take(
        self,
        tokens: Items[int],
        followed: Items[GrammarStatus] = (),
        *,
        now: float,
        logprobs: Items[float] = (),
    ) -> tuple[Taken, Exception | None]:
        """Append tokens up to the one that ends the text; return the appended ones and the error, if any.

        `followed`: status of the grammar after each token. `logprobs`: the log-probability of each token.
        """
        output, before, error = self.output, len(self.output), None
        for index, token in enumerate(tokens):
            output.append(token)
            try:
                delta = self._follow(token, followed[index]) if followed else self.stream.push(token)
            except GencliError as raised:  # a stop pattern that takes too long
                error = raised
                break
            self._texts.append(delta.text)
            if (finish := delta.finish) is not None:
                self.finish = FinishReason("length", "max_tokens") if finish.reason == "length" else finish
            if self.finish is None and len(self.prompt) + len(output) >= self._longest:
                self.cut = "context" if len(self) >= self.context else "max_tokens"
            if self.finish is not None or self.cut:
                break
        if self.first_token is None and output:
            self.first_token = now
        ids = tuple(output[before:])
        self.logprob += sum(logprobs[: len(ids)]) if logprobs else 0.0
        forced = tuple([entry.forced for entry in followed[: len(ids)]]) if followed else ()
        return Taken(ids, forced), error

    def take_given(self, tokens: Items[int], followed: Items[GrammarStatus] = (), *, now: float) -> Taken:
        """Append tokens of a given output; only the output's length ends it. Otherwise as `take`."""
        for token in tokens:
            self.output.append(token)
            self._texts.append(self.stream.add(token).text)
        if followed:
            self.document = followed[-1].document
        if self.first_token is None:
            self.first_token = now
        if self.room <= 0:
            self.close("length", "max_tokens")
        forced = [entry.forced for entry in followed[: len(tokens)]]
        return Taken(tuple(tokens), (*forced, *[False] * (len(tokens) - len(forced))) if forced else ())

    def end_cut(self, closing: Items[int], cut: str | None = None) -> None:
        """End a text at a limit; `closing`: tokens that complete its document, or ()."""
        for token in closing:
            self.output.append(token)
            self._texts.append(self.stream.add(token).text)
        if closing:
            self.document, self.num_closing = "complete", len(closing)
        self.close("closed" if closing else "length", cut or self.cut)

    def _follow(self, token: int, followed: GrammarStatus) -> Delta:
        is_inside = self.document in (None, "free", "open")
        self.document = followed.document
        if followed.document == "broken":
            raise GenerationError(f"Token {token} was chosen, which the grammar does not allow here.")
        return self.stream.push(token, in_document=is_inside, grammar_end=followed.document == "over")

    def close(self, reason: str, matched: str | None = None) -> None:
        """End the text for a reason outside of it, and emit text that the stop rules held back."""
        self._texts.append(self.stream.close(reason).text)
        self.finish = FinishReason(reason, matched)

    def restart(self, stream: TextStream) -> None:
        """Reset to the prompt, without a slot. Text that is generated again is not emitted twice."""
        self.stream = stream
        self.place(-1)
        self.hold(())
        self.output, self._logprobs, self._views, self._texts, self.logprob = [], [], [], [], 0.0
        self.finish, self.cut, self.document, self.drafted = None, "", None, None
        self.num_closing = 0

    def drain(self, now: float, error: Exception | None = None) -> list[Event]:
        """Return the events since the last call."""
        num_ids, num_texts = self._emitted
        ids, text = tuple(self.output[num_ids:]), "".join(self._texts[num_texts:])
        self._emitted = max(num_ids, len(self.output)), max(num_texts, len(self._texts))
        entries = tuple(self._logprobs[num_ids:]) if self._logprobs else ()
        views = tuple(self._views[-len(ids) :]) if ids else ()  # after a restart there are older views
        self._views = []  # frees memory
        events: list[Event] = []
        if ids or text:
            events.append(Token(self.request.id, self.sample, text, ids, entries, views))
        if error is not None:
            name, count, text = type(error).__name__, len(self.output), "".join(self._texts)
            events.append(Error(self.request.id, self.sample, name, str(error), text, count, error.__cause__))
        elif self.finish is not None:
            events.append(_finished(self, self.finish, "".join(self._texts), now))
        return events


def _finished(sequence: Sequence, finish: FinishReason, text: str, now: float) -> Finish:
    """Return the event of a sequence that ended with the output `text` at `now`, in monotonic seconds."""
    started = now if sequence.started is None else sequence.started
    first = now if sequence.first_token is None else sequence.first_token
    return Finish(
        request=sequence.request.id,
        sample=sequence.sample,
        text=text,
        reason=finish.reason,
        matched=finish.matched,
        offset=finish.offset,
        prompt_tokens=len(sequence.prompt),
        completion_tokens=len(sequence.output),
        timings=Timings(
            prefill=first - started,
            decode=now - first,
            first_token=first - sequence.submitted,
            queue=started - sequence.submitted,
        ),
        cached_tokens=sequence.num_cached_tokens,
        document=sequence.document,
        logprob=sequence.logprob,
        drafted=sequence.drafted,
        closing_tokens=sequence.num_closing,
    )


@dataclass(slots=True, eq=False)
class PromptScoring:
    """Scores of the prompt of one request.

    `next`: the first position not scored yet; it needs the logits of the position before. `is_only`: nothing
    is generated, so the last prompt token is not fed. `is_reported`: whether the event of the prompt is out.
    """

    request: Request
    next: int = field(init=False)
    is_reported: bool = False
    scores: list[TokenLogprobs | None] = field(init=False)

    def __post_init__(self) -> None:
        self.next = self.request.score_from
        self.scores = [None] * len(self.request.prompt_ids)

    @property
    def is_only(self) -> bool:
        return self.request.limits.max_tokens == 0

    @property
    def is_complete(self) -> bool:
        return self.next >= len(self.scores)

    @property
    def first_read(self) -> int:
        """The first position whose logits are needed; tokens before it may come from a cache."""
        return min(self.next, len(self.scores)) - 1

    def num_rows(self, start: int, end: int) -> int:
        """Number of positions to score whose logits come from feeding the tokens `start` to `end`."""
        end = min(end, len(self.scores) - 1)
        return 0 if self.is_complete else max(0, end - max(start, self.first_read))

    def take(self, entries: list[TokenLogprobs]) -> None:
        self.scores[self.next : self.next + len(entries)] = entries
        self.next += len(entries)


class Group(ABC):
    """Sequences of one request that run side by side and end together, such as the beams of a search.

    `members`: the running sequences; a waiting group has one. `width`: slots that the group needs. `slots`:
    its slots while it runs.
    """

    def __init__(self, root: Sequence, width: int) -> None:
        self.request, self.width = root.request, width
        self.members, self.slots = [root], ()
        root.group = self

    members: list[Sequence]
    slots: tuple[int, ...]

    @property
    def is_behind(self) -> bool:
        """Whether members still recompute their lanes. All of them wait, as they choose tokens together."""
        return len(self.members) > 1 and any(member.lag > 1 for member in self.members)

    @abstractmethod
    def close(self, reason: str, matched: str | None = None) -> None:
        """End all members for a reason outside of their texts."""

    @abstractmethod
    def drain(self, now: float, error: Exception | None = None) -> list[Event]:
        """Return the events of a group that has ended, or that failed with `error`."""

    @abstractmethod
    def restart(self, stream: TextStream) -> None:
        """Reset to one member that holds the prompt, without slots."""


def heads(sequences: Iterable[Sequence]) -> list[Sequence]:
    """Return the first sequence of each group, and the sequences without one."""
    firsts = dict[int, Sequence]()
    for sequence in sequences:
        firsts.setdefault(id(sequence.unit), sequence)
    return [*firsts.values()]


@dataclass(frozen=True, slots=True)
class Fork:
    """Copy a lane's first `length` tokens to another lane before the step."""

    source: int
    target: int
    length: int


class PrefixCache:
    """Prompts of running sequences, and (`warm`) texts of finished ones whose KV is still in a lane.

    A sequence begins when it starts its prefill or receives a copy of a prefix. Until then it is one of
    `waiting`, by slot: it waits for a lane that computes its prefix. Only begun sequences are waited for, so
    there are no circular waits.

    Models without rollback can copy a whole prompt (all but its last token) only: the source lane stops there
    until the waiting sequences have their copies.

    `rope_switches` is ModelSpec.rope_switches: no prefix is shared across a switch.
    """

    def __init__(
        self, warm: Prefixes, *, can_rollback: bool, is_on: bool, rope_switches: tuple[int, ...] = ()
    ) -> None:
        self._warm, self._can_rollback, self._is_on = warm, can_rollback, is_on
        self._rope_switches = rope_switches
        self._prompts = Prefixes()  # prompts of begun sequences, by lane
        self._begun: dict[int, Sequence] = {}
        self.waiting: dict[int, Sequence] = {}

    def begin(self, sequence: Sequence) -> None:
        """Start the sequence's prefill; other sequences may wait for its prefix from now on."""
        self._begun[sequence.slot] = sequence
        self.waiting.pop(sequence.slot, None)
        self._prompts.add(sequence.slot, sequence.prompt[:-1], sequence.kind)

    def leave(self, sequence: Sequence) -> None:
        """Remove a sequence that gives up its slot."""
        self._begun.pop(sequence.slot, None)
        self.waiting.pop(sequence.slot, None)
        self._prompts.remove(sequence.slot)

    def best(self, prompt: Tokens, limit: int | None = None, *, salt: str = "") -> Match:
        """Return the lane, begun or warm, with the longest shared prefix, if the prefix is worth a copy.

        `limit`: tokens that may be copied; by default all but the last. `salt`: salt of the request.
        """
        if not self._is_on:
            return Match()
        beginning = prompt[: -1 if limit is None else limit]
        kind = rope_factors(len(prompt), self._rope_switches), salt
        matches = [prefixes.nearest(beginning, kind) for prefixes in (self._prompts, self._warm)]
        match = max(matches, key=lambda match: match.length)
        if self._can_rollback:
            return match if is_worth_copying(match.length, len(beginning)) else Match()
        # The lane has to hold exactly this beginning, and no more.
        source = self._begun.get(match.lane) if match.length == len(beginning) else None
        is_exact = source and len(self._prompts[match.lane]) == match.length >= source.num_computed_tokens
        return match if is_exact else Match()

    def forks(self) -> tuple[Fork, ...]:
        """Return the copies for this step. Sequences without a match begin; others wait for their prefix."""
        forks = []
        for sequence in [*self.waiting.values()]:
            match = self.best(sequence.prompt, len(sequence.reusable), salt=sequence.request.salt)
            source = self._begun.get(match.lane)
            if match.length == 0:
                self.begin(sequence)
            elif source is None or source.num_computed_tokens >= match.length:
                forks.append(Fork(match.lane, sequence.slot, match.length))
                sequence.reuse(match.length)
                self.begin(sequence)
        return tuple(forks)

    def prefill_end(self, sequence: Sequence) -> int:
        """Return the number of tokens up to which the sequence may be fed in this step."""
        if sequence.slot in self.waiting:
            return sequence.num_computed_tokens
        shared, prefix = len(sequence.prompt) - 1, sequence.prompt[:-1]
        if self._can_rollback or sequence.num_computed_tokens >= shared:
            return len(sequence)
        is_awaited = any(other.reusable == prefix for other in self.waiting.values())
        return shared if is_awaited else len(sequence)


# Sequences whose next token a step chooses, each with its draft tokens.
SampledSequences = list[tuple[Sequence, tuple[int, ...]]]
Propose = Callable[[list[Sequence]], dict[int, tuple[int, ...]]]  # drafts by slot


def span_feed(sequence: Sequence, end: int, drafts: tuple[int, ...]) -> Feed:
    """Return the feed of the tokens up to `end`; drafts follow only the last committed token."""
    start, is_prefill = sequence.num_computed_tokens, end < len(sequence)
    scored = sequence.scoring.num_rows(start, end) if sequence.scoring else 0
    num_logits = scored + (0 if is_prefill else 1 + len(drafts))
    tokens = sequence.tokens(start, end) + drafts
    return Feed(sequence.slot, start, tokens, num_logits, len(sequence) if is_prefill else 0, scored)

"""Results of a run, collected from its events: outcomes, log-probabilities, draft statistics,
progress and rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, Generic, TypeVar

from gencli.core.events import (
    Alternative,
    Drafted,
    Error,
    Event,
    Finish,
    PromptScores,
    Reading,
    Token,
    TokenLogprobs,
)
from gencli.text.tokenizer import Tokenizer
from processors.errors import StageFailure

T = TypeVar("T")


def of_last_attempt(values: Sequence[T], end: Finish | Error) -> Sequence[T]:
    """Return the last `completion_tokens` of the values, which belong to the attempt that has ended."""
    return values[max(0, len(values) - end.completion_tokens) :]


@dataclass(slots=True)
class ByToken(Generic[T]):
    """Collects values from the Token events of one request; `values_of` takes them from an event."""

    values_of: Callable[[Token], Sequence[T]]
    _samples: dict[int, list[T]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Add the event's values. At the end of a sample, values of earlier attempts are dropped."""
        if isinstance(event, Token):
            if values := self.values_of(event):
                self._samples.setdefault(event.sample, []).extend(values)
        elif isinstance(event, Finish | Error) and event.sample in self._samples:
            self._samples[event.sample] = [*of_last_attempt(self._samples[event.sample], event)]

    def of(self, sample: int) -> tuple[T, ...]:
        """Return the values collected with the tokens of a sample; () if there are none."""
        return tuple(self._samples.get(sample, ()))


def token_ids() -> ByToken[int]:
    """Return a collector of the token ids of one request's outputs."""
    return ByToken(lambda event: event.ids)


@dataclass(slots=True)
class Scores:
    """Log-probabilities of one request, from its events; `prompt` is None without prompt scores."""

    prompt: tuple[TokenLogprobs | None, ...] | None = None
    _samples: ByToken[TokenLogprobs] = field(default_factory=lambda: ByToken(lambda event: event.logprobs))

    def add(self, event: Event) -> None:
        """Add the log-probabilities of an event."""
        if isinstance(event, PromptScores):
            self.prompt = event.scores
        self._samples.add(event)

    def of(self, sample: int) -> tuple[TokenLogprobs, ...]:
        """Return the entries of a sample's tokens."""
        return self._samples.of(sample)


def entry_record(entry: TokenLogprobs | None, tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Return an entry as JSON. A log-probability of -inf is null."""
    if entry is None:
        return None
    return {
        **_alternative(entry.chosen, tokenizer),
        "rank": entry.rank,
        "processed_rank": entry.processed_rank,
        "top": [_alternative(token, tokenizer) for token in entry.top],
        "processed_top": [_alternative(token, tokenizer) for token in entry.processed_top],
    }


def _alternative(token: Alternative, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "id": token.id,
        "token": piece(token.id, tokenizer),
        "bytes": list(bytes_of(token.id, tokenizer)),
        "logprob": significant(token.logprob),
        "processed": significant(token.processed),
        "banned_by": token.banned_by or None,
    }


def significant(value: float) -> float | None:
    """Return the number with six significant digits, which no other row changes; None if it is not finite."""
    return None if not math.isfinite(value) else float(f"{value:.6g}")


def bytes_of(token: int, tokenizer: Tokenizer) -> bytes:
    """Return the bytes that a token adds to the text; b"" for an id that the tokenizer lacks."""
    return tokenizer.token_bytes[token] if token < tokenizer.vocab_size else b""


def piece(token: int, tokenizer: Tokenizer) -> str:
    """Return the text of a token; for a special token its name, for an id that the tokenizer lacks ""."""
    if token in tokenizer.special_ids:
        return tokenizer.decode([token], skip_special=False)
    return bytes_of(token, tokenizer).decode(errors="replace")


def score_rows(entries: Sequence[TokenLogprobs | None], tokenizer: Tokenizer) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table of entries, header first: token, log-probabilities, ranks, top ids."""
    yield ("token", "logprob", "rank", "processed", "rank", "best under the model")
    for entry in entries:
        if entry is None:
            continue
        best = "  ".join(
            f"{piece(token.id, tokenizer)!r} {token.logprob:.4f}"
            + (f" ({token.banned_by})" if token.banned_by else "")
            for token in entry.top
        )
        chosen = entry.chosen
        under_model = repr(piece(chosen.id, tokenizer)), f"{chosen.logprob:.4f}", str(entry.rank)
        yield (*under_model, chosen.banned_by or f"{chosen.processed:.4f}", str(entry.processed_rank), best)


LATE = "`max_time` passed before the first token."

Outcome = Finish | Error


@dataclass(slots=True)
class PromptRow:
    """A prompt with the text so far and the outcome of each sample.

    Samples that had not begun have one outcome, that of the first of them (see `Finish.more`).
    `is_partial`: whether invalid texts are shown. `running`: samples with text but no outcome yet.
    `num_open`: number of samples without an outcome. `prompt_ids`: token ids of the prompt, () if it was
    refused before they were known.
    """

    id: str
    prompt: str
    num_open: int
    is_partial: bool = True
    texts: list[str] = field(init=False)
    outcomes: list[Outcome | None] = field(init=False)
    running: set[int] = field(default_factory=set)
    scores: Scores = field(default_factory=Scores)
    ids: ByToken[int] = field(default_factory=token_ids)
    prompt_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.texts, self.outcomes = [""] * self.num_open, [None] * self.num_open

    @property
    def is_done(self) -> bool:
        """Whether every sample has ended."""
        return not self.num_open

    def add(self, event: Event) -> None:
        """Add an event of one of the samples."""
        self.scores.add(event)
        self.ids.add(event)
        if isinstance(event, Token):
            self.texts[event.sample] += event.text
            self.running.add(event.sample)
        elif isinstance(event, Finish | Error):
            self.texts[event.sample] = event.text
            self.outcomes[event.sample] = event
            self.running.discard(event.sample)
            self.num_open -= num_samples(event)

    @property
    def ended(self) -> list[Outcome]:
        """The outcomes so far."""
        return [outcome for outcome in self.outcomes if outcome is not None]

    @property
    def finishes(self) -> list[Finish]:
        """The samples that did not fail."""
        return [outcome for outcome in self.outcomes if isinstance(outcome, Finish)]

    def shown(self, sample: int) -> str | None:
        """Return the output of a finished sample; None if it is invalid and hidden, or has not begun."""
        outcome = self.outcomes[sample]
        if not isinstance(outcome, Finish):
            return self.texts[sample] if self.is_partial else None
        has_begun = outcome.reason != "interrupted" or outcome.completion_tokens
        verdict = outcome.verdict
        if not has_begun or outcome.is_late or (verdict and not verdict.is_valid and not self.is_partial):
            return None
        return verdict.written if verdict else self.texts[sample]


class Results:
    """The rows of a run, in the order of the prompts. `is_partial`: texts of failed samples are shown."""

    def __init__(self, prompts: Sequence[str], num_samples: int, *, is_partial: bool = True) -> None:
        self.rows = [
            PromptRow(str(number), prompt, num_samples, is_partial)
            for number, prompt in enumerate(prompts, start=1)
        ]
        self._by_id = {row.id: row for row in self.rows}

    def row(self, request: str) -> PromptRow:
        """Return the row of a request."""
        return self._by_id[request]

    def add(self, event: Event) -> PromptRow:
        """Add an event; return its row."""
        row = self._by_id[event.request]
        row.add(event)
        return row

    @property
    def finishes(self) -> list[Finish]:
        """All samples that did not fail."""
        return [finish for row in self.rows for finish in row.finishes]

    @property
    def failures(self) -> list[Error]:
        """All samples without a result."""
        return [
            replace(failed, sample=failed.sample + more)
            for row in self.rows
            for outcome in row.ended
            if (failed := failure(outcome)) is not None
            for more in range(num_samples(outcome))
        ]

    @property
    def exit_code(self) -> int:
        """130 if interrupted, 6 if all failed (4 if all by a plug-in), 7 if some did, else 0."""
        if any(finish.reason == "interrupted" for finish in self.finishes):
            return 130
        if not self.failures:
            return 0
        if len(self.failures) < sum(len(row.outcomes) for row in self.rows):
            return 7
        return 4 if all(failed.type == StageFailure.__name__ for failed in self.failures) else 6


def num_samples(outcome: Outcome) -> int:
    """Return the number of samples that have this outcome."""
    return 1 + (outcome.more if isinstance(outcome, Finish) else 0)


def failure(outcome: Outcome) -> Error | None:
    """Return the reason why a sample has no result; None if it has one."""
    if isinstance(outcome, Error):
        return outcome
    request, sample, verdict = outcome.request, outcome.sample, outcome.verdict
    if verdict is None:
        return Error(request, sample, "Timeout", LATE, outcome.text) if outcome.is_late else None
    if verdict.is_valid:
        return None
    tried = f" ({verdict.attempts} attempts)" if verdict.attempts > 1 else ""
    message = f"The output is not valid{tried}: {'; '.join(verdict.faults).rstrip('.')}."
    return Error(request, sample, "InvalidOutput", message, outcome.text)


def tokens_per_second(finishes: Sequence[Finish]) -> float | None:
    """Return the decoding speed of samples submitted together, in tokens per second; None if too few tokens.

    (number of decoded tokens - one per sample) / (time from the first token of all samples to the last).
    """
    tokens = sum(max(0, finish.decoded_tokens - 1) for finish in finishes)
    if not tokens:
        return None
    times = [finish.timings for finish in finishes]
    seconds = max(t.first_token + t.decode for t in times) - min(t.first_token for t in times)
    return tokens / seconds if seconds > 0 else None


class PromptProgress:
    """Counts the prefilled tokens of prompts without output so far; once for all samples of a prompt."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, int]] = {}  # tokens prefilled, and total, by request

    def add(self, event: Event) -> None:
        """Add an event. A request with output, or at its end, is no longer counted."""
        if isinstance(event, Reading):
            done, _ = self._open.get(event.request, (0, 0))
            self._open[event.request] = max(done, event.done), event.total
        else:
            self._open.pop(event.request, None)

    @property
    def text(self) -> str:
        """A text such as "reading a prompt: 512 of 901 tokens"; "" if no long prompt is being read."""
        if not self._open:
            return ""
        done, total = (sum(counts) for counts in zip(*self._open.values(), strict=True))
        prompts = "a prompt" if len(self._open) == 1 else f"{len(self._open)} prompts"
        return f"reading {prompts}: {done:,} of {total:,} tokens"


@dataclass(frozen=True, slots=True)
class ProgressRate:
    """Samples done and in total, tokens per second, and seconds left; None if not known yet.

    `reading`: text about the progress of prompts in prefill, "" without any.
    """

    done: int
    total: int
    speed: float | None
    left: float | None
    reading: str = ""


class Meter:
    """Counts the tokens of every sample. `max_tokens` is the limit of a sample."""

    def __init__(self, total: int, max_tokens: int) -> None:
        self._total, self._max_tokens = total, max_tokens
        self._prompts = PromptProgress()
        self._open: dict[tuple[str, int], int] = {}
        self._num_ended = self._num_failed = 0
        self._ended_tokens = self._failed_tokens = 0  # those of failed samples do not estimate lengths
        self._first: tuple[float, int] | None = None  # time of the first event, and tokens by then

    def add(self, event: Event, now: float) -> None:
        """Count an event at the time `now` in seconds."""
        self._prompts.add(event)
        if isinstance(event, Reading):
            return
        name = event.request, event.sample
        if isinstance(event, Token):
            self._open[name] = self._open.get(name, 0) + len(event.ids)
        else:
            tokens = self._open.pop(name, 0)
            if isinstance(event, Finish):
                self._num_ended += 1 + event.more
                self._ended_tokens += event.completion_tokens
            else:
                self._num_failed += 1
                self._failed_tokens += tokens
        if self._first is None:
            self._first = now, self._tokens

    def pace(self, now: float) -> ProgressRate:
        """Return the rate at the time `now`.

        seconds left = tokens missing / tokens per second. Unfinished samples are expected to reach the mean
        length of the finished ones, or `max_tokens` before any has finished.
        """
        done = self._num_ended + self._num_failed
        start, before = self._first or (now, 0)
        speed = (self._tokens - before) / (now - start) if now > start and self._tokens > before else None
        length = self._ended_tokens / self._num_ended if self._num_ended else self._max_tokens
        missing = length * (self._total - done) - sum(min(length, count) for count in self._open.values())
        left = missing / speed if speed else None
        return ProgressRate(done, self._total, speed, left, self._prompts.text)

    @property
    def _tokens(self) -> int:
        return self._ended_tokens + sum(self._open.values()) + self._failed_tokens


_SHOWN = 8  # draft positions shown in a line
_LOSS = 0.97  # a speed-up below this is reported as a loss
_FEW, _TRIES = 0.05, 200  # a share of accepted first drafts, and how many tries show that it is too low


def draft_record(finish: Finish | None, drafter: str) -> dict[str, Any] | None:
    """Return a sample's draft record, as in docs/run-output.schema.json; None without drafting."""
    if finish is None or finish.drafted is None:
        return None
    drafted = finish.drafted
    return {
        "drafter": drafter,
        "forwards": drafted.forwards,
        "tokens_per_forward": _rounded(finish.decoded_tokens, drafted.forwards),
        "proposed": list(drafted.proposed),
        "accepted": list(drafted.accepted),
        "nodes": drafted.nodes,
        "draft_seconds": round(drafted.draft_seconds, 6),
        "verify_seconds": round(drafted.verify_seconds, 6),
        "speedup": None if drafted.speedup is None else round(drafted.speedup, 3),
        "held_by": drafted.held or None,
    }


def draft_lines(finishes: Sequence[Finish], drafter: str) -> Iterator[str]:
    """Yield the totals of all samples, and advice if drafting was slower."""
    drafting = [finish for finish in finishes if finish.drafted is not None]
    if not drafting:
        return
    total = reduce(add, (finish.drafted for finish in drafting if finish.drafted), Drafted())
    tokens = sum(finish.decoded_tokens for finish in drafting)
    proposed, accepted = sum(total.proposed), sum(total.accepted)
    if not proposed:
        yield f"Drafts ({drafter}): none were made."
    else:
        rates = [f"{a / p:.0%}" for a, p in zip(total.accepted, total.proposed, strict=True)][:_SHOWN]
        trees = f"{total.nodes / total.forwards:.1f} nodes of trees a forward, " if total.nodes else ""
        speedup = ""  # too few plain steps of the same run were timed
        if total.speedup is not None:
            speedup = f", {total.speedup:.2f} times plain steps ({total.plain} timed)"
        yield (
            f"Drafts ({drafter}): {accepted} of {proposed} accepted ({', '.join(rates)} by position), {trees}"
            f"{_rounded(tokens, total.forwards):.2f} tokens a forward, drafting {total.draft_seconds:.2f} s, "
            f"the rest {total.verify_seconds:.2f} s{speedup}."
        )
    if total.held:
        yield f"The stage {total.held} needs each token before the next, so its texts took no drafts."
    if not proposed:
        return
    if total.proposed[0] >= _TRIES and total.accepted[0] < _FEW * total.proposed[0]:
        yield (
            f"The first draft was accepted {total.accepted[0]} of {total.proposed[0]} times. Does the "
            "drafter belong to this model? For a trained head, doctor with `draft` finds wrong settings."
        )
    if total.speedup is not None:
        is_loss = total.speedup < _LOSS
    else:  # too few plain steps were timed: it is estimated
        is_loss = tokens / total.forwards * total.verify_seconds < total.draft_seconds + total.verify_seconds
    if is_loss:
        yield "Drafting took longer than the forwards that it saved: leave out `draft`, or name another."


def _rounded(tokens: int, forwards: int) -> float | None:
    return round(tokens / forwards, 3) if forwards else None

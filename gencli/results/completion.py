"""Result of a prompt in Python: its samples as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gencli.core.events import Error, Event, Finish, TokenLogprobs
from gencli.errors import GenerationError
from gencli.explain.record import Record
from gencli.explain.views import Views, records, views
from gencli.results.results import failure
from gencli.results.scores import Scores
from gencli.text.tokenizer import Tokenizer

__all__ = ["Completion", "Completions", "Sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample. `finish_reason` is eos, stop, length, grammar, loop, interrupted, closed or error.

    `matched` is the stop string, token id or limit that ended it. `error` is the reason for an invalid
    result, None for a valid one. Token counts are of this sample; `cached_tokens` of the prompt were in the
    prefix cache. `score`: score of beam search or best-of-n. `value`: the parsed structured output.
    `logprobs`: log-probabilities of the tokens, if requested. `trace`: records of the effect of each stage,
    if requested (docs/trace.schema.json).
    """

    text: str
    finish_reason: str
    matched: str | int | None = None
    error: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = field(default=0, compare=False)
    score: float | None = None
    value: Any = None
    logprobs: tuple[TokenLogprobs, ...] = field(default=(), repr=False)
    trace: tuple[Record, ...] = field(default=(), repr=False)

    @classmethod
    def of(
        cls, end: Finish | Error, logprobs: tuple[TokenLogprobs, ...] = (), trace: Sequence[Record] = ()
    ) -> Sample:
        """Return the sample of a final event."""
        failed = failure(end)
        error = failed.message if failed else None
        if isinstance(end, Error):
            return cls(end.text, "error", error=error, trace=tuple(trace))
        return cls(
            end.verdict.written if end.verdict and end.verdict.is_valid else end.text,
            end.reason,
            end.matched,
            error,
            end.prompt_tokens,
            end.completion_tokens,
            end.cached_tokens,
            end.score,
            end.verdict.value if end.verdict else None,
            logprobs,
            tuple(trace),
        )

    @property
    def parsed(self) -> Any:
        """The value of a structured output. Raises GenerationError if it is not valid."""
        if self.error is not None:
            raise GenerationError(self.error)
        return self.value


@dataclass(frozen=True, slots=True)
class Completion:
    """Samples of a prompt. All properties except `texts` refer to the first sample.

    `prompt_logprobs`: an entry for each prompt token, None for the first; empty if not requested.
    """

    prompt: str
    samples: tuple[Sample, ...]
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        prompt: str,
        ends: Sequence[Finish | Error],
        scores: Scores | None = None,
        trace: Callable[[int], Sequence[Record]] = lambda sample: (),
    ) -> Completion:
        """Return the completion of a prompt from the final events of its samples.

        `scores`: log-probabilities of the prompt and its samples. `trace` returns the records of a sample.
        """
        scores = scores or Scores()
        samples = tuple(Sample.of(end, scores.of(end.sample), trace(end.sample)) for end in ends)
        return cls(prompt, samples, scores.prompt or ())

    @property
    def text(self) -> str:
        """The text of the first sample."""
        return self.samples[0].text

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        """Log-probabilities of the first sample's tokens; empty if not requested."""
        return self.samples[0].logprobs

    @property
    def trace(self) -> tuple[Record, ...]:
        """Records of the first sample's tokens, with the effect of each stage; empty if not requested."""
        return self.samples[0].trace

    @property
    def texts(self) -> list[str]:
        """The texts of all samples."""
        return [sample.text for sample in self.samples]

    @property
    def finish_reason(self) -> str:
        """Reason why the first sample ended."""
        return self.samples[0].finish_reason

    @property
    def parsed(self) -> Any:
        """The value of the first sample's structured output. Raises GenerationError if it is not valid."""
        return self.samples[0].parsed

    @property
    def error(self) -> str | None:
        """Reason why the first sample has no valid result; None if it has one."""
        return self.samples[0].error


class Completions:
    """Collects the events of prompts into their completions; the id of a request is its prompt's index."""

    def __init__(self, prompts: Sequence[str], tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._prompts = [_Prompt(text) for text in prompts]

    def add(self, event: Event) -> None:
        """Add an event of one of the prompts."""
        prompt = self._prompts[int(event.request)]
        prompt.scores.add(event)
        prompt.views.add(event)
        if isinstance(event, Finish | Error):
            prompt.ends.append(event)

    def done(self) -> list[Completion]:
        """Return the completions, once all samples have ended."""
        return [self._completion(str(index), prompt) for index, prompt in enumerate(self._prompts)]

    def _completion(self, run: str, prompt: _Prompt) -> Completion:
        def trace(sample: int) -> Sequence[Record]:
            return records(prompt.views.of(sample), self._tokenizer, run=run, sample=sample)

        ends = sorted(prompt.ends, key=lambda end: end.sample)
        return Completion.of(prompt.text, ends, prompt.scores, trace)


@dataclass(slots=True)
class _Prompt:
    """A prompt, and the data collected from the events of its samples."""

    text: str
    ends: list[Finish | Error] = field(default_factory=list)
    scores: Scores = field(default_factory=Scores)
    views: Views = field(default_factory=views)

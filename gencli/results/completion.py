"""Result of a prompt in Python: its samples as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gencli.core.events import Error, Finish, TokenLogprobs
from gencli.errors import GenerationError
from gencli.results.results import failure
from gencli.results.scores import Scores

__all__ = ["Completion", "Sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample. `finish_reason` is eos, stop, length, grammar, loop, interrupted, closed or error.

    `matched` is the stop string, token id or limit that ended it. `error` is the reason for an invalid
    result, None for a valid one. Token counts are of this sample; `cached_tokens` of the prompt were in the
    prefix cache. `score` is that of beam search or best-of-n, `value` the parsed structured output.
    `logprobs` are those of the tokens, if they were asked for.
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

    @classmethod
    def of(cls, end: Finish | Error, logprobs: tuple[TokenLogprobs, ...] = ()) -> Sample:
        """Return the sample of a final event."""
        failed = failure(end)
        error = failed.message if failed else None
        if isinstance(end, Error):
            return cls(end.text, "error", error=error)
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
        )

    @property
    def parsed(self) -> Any:
        """The value of a structured output. Raises GenerationError if it is not valid."""
        if self.error is not None:
            raise GenerationError(self.error)
        return self.value


@dataclass(frozen=True, slots=True)
class Completion:
    """Samples of a prompt. All properties but `texts` are those of the first sample.

    `prompt_logprobs`: an entry for each prompt token if they were asked for, None for the first; else empty.
    """

    prompt: str
    samples: tuple[Sample, ...]
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, prompt: str, ends: Sequence[Finish | Error], scores: Scores | None = None) -> Completion:
        """Return the completion of a prompt from the final events of its samples, and its scores."""
        scores = scores or Scores()
        samples = tuple(Sample.of(end, scores.of(end.sample)) for end in ends)
        return cls(prompt, samples, scores.prompt or ())

    @property
    def text(self) -> str:
        """The text of the first sample."""
        return self.samples[0].text

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        """Log-probabilities of the first sample's tokens; empty if they were not asked for."""
        return self.samples[0].logprobs

    @property
    def texts(self) -> list[str]:
        """The texts of all samples."""
        return [sample.text for sample in self.samples]

    @property
    def finish_reason(self) -> str:
        """Why the first sample ended."""
        return self.samples[0].finish_reason

    @property
    def parsed(self) -> Any:
        """The value of the first sample's structured output. Raises GenerationError if it is not valid."""
        return self.samples[0].parsed

    @property
    def error(self) -> str | None:
        """Why the first sample has no valid result; None if it has one."""
        return self.samples[0].error

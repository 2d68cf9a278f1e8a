"""The result of a prompt for Python: its samples, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gencli.core.events import Error, Finish
from gencli.errors import GenerationError
from gencli.results.results import failure

__all__ = ["Completion", "Sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One text. `finish_reason` is eos, stop, length, grammar, loop, interrupted, closed or error.

    `matched` says what stopped it: the stop text or id, or the limit. `error` says why there is no valid
    result, None if there is one. Token counts are of this sample; `cached_tokens` of the prompt were in
    the prefix cache.
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

    @classmethod
    def of(cls, end: Finish | Error) -> Sample:
        """The sample that an event ended."""
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
        )

    @property
    def parsed(self) -> Any:
        """The value of a structured output. GenerationError if it is not valid."""
        if self.error is not None:
            raise GenerationError(self.error)
        return self.value


@dataclass(frozen=True, slots=True)
class Completion:
    """What a prompt has led to. The properties are those of its first sample."""

    prompt: str
    samples: tuple[Sample, ...]

    @classmethod
    def of(cls, prompt: str, ends: Sequence[Finish | Error]) -> Completion:
        """The completion of a prompt whose samples have ended."""
        return cls(prompt, tuple(Sample.of(end) for end in ends))

    @property
    def text(self) -> str:
        """The text of the first sample."""
        return self.samples[0].text

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
        """The value of the first sample's structured output. GenerationError if it is not valid."""
        return self.samples[0].parsed

    @property
    def error(self) -> str | None:
        """Why the first sample has no valid result; None if it has one."""
        return self.samples[0].error

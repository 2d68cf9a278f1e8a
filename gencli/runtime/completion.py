"""Result of a prompt in Python: its samples as values; an error for attributes of other libraries (vLLM,
transformers, openai, llama-cpp) that names the one here; and the bar of a call, on one line of stderr.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TextIO

from gencli.core.events import Drafted, Error, Event, Finish, TokenLogprobs
from gencli.errors import GenerationError
from gencli.explain.page import html_fragments as html
from gencli.explain.token_record import Record, Views, records, views
from gencli.explain.trace_file import Trace
from gencli.helpers import clock, counted
from gencli.results.run_results import Meter, PromptRow, failure
from gencli.text.escapes import shown
from gencli.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, repr=False)
class Sample:
    """One sample. `finish_reason` is eos, stop, length, grammar, loop, interrupted, closed or error.

    `matched` is the stop string, token id or limit that ended it. `error` is the reason for an invalid
    result, None for a valid one. Token counts are of this sample; `cached_tokens` of the prompt were in the
    prefix cache. `score`: score of beam search or best-of-n. `value`: the parsed structured output.
    `logprobs`: log-probabilities of the tokens, if requested. `trace`: records of the effect of each stage,
    if requested (docs/trace.schema.json). `token_ids`: the ids as they were generated, `completion_tokens` of
    them: also those of a stop, of an end token and of thinking, which `text` lacks. `drafted`: passes of
    the model, and by position how many draft tokens were proposed and accepted; None without a drafter.
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
    logprobs: tuple[TokenLogprobs, ...] = ()
    trace: Trace = field(default=Trace())
    token_ids: tuple[int, ...] = ()
    drafted: Drafted | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        end: Finish | Error,
        logprobs: tuple[TokenLogprobs, ...] = (),
        trace: Sequence[Record] = (),
        ids: tuple[int, ...] = (),
    ) -> Sample:
        """Return the sample of a final event."""
        error = failed.message if (failed := failure(end)) else None
        if isinstance(end, Error):
            return cls(end.text, "error", error=error, trace=Trace(trace), token_ids=ids)
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
            Trace(trace),
            ids,
            end.drafted,
        )

    @property
    def parsed(self) -> Any:
        """The value of a structured output. Raises GenerationError if it is not valid."""
        if self.error is not None:
            raise GenerationError(self.error)
        return self.value

    def __repr__(self) -> str:
        parts = [f"text={shown(self.text)}", f"finish_reason={self.finish_reason!r}"]
        parts += [f"completion_tokens={self.completion_tokens}"]
        parts += [] if self.score is None else [f"score={self.score:.4g}"]
        parts += [] if self.error is None else [f"error={shown(self.error)}"]
        return f"Sample({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return html.fragment(*_blocks("", self))

    if not TYPE_CHECKING:  # a type checker knows the attributes that there are

        def __getattr__(self, name: str) -> Any:
            raise missing(self, name, OF_SAMPLE)


@dataclass(frozen=True, slots=True, repr=False)
class Completion:
    """Samples of a prompt. All properties except `texts` refer to the first sample.

    `prompt_logprobs`: an entry for each prompt token, None for the first; empty if not requested.
    `prompt_token_ids`: the ids that the model read, template and special tokens included.
    """

    prompt: str
    samples: tuple[Sample, ...]
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    prompt_token_ids: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The text of the first sample."""
        return self.samples[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Ids of the first sample's tokens, as they were generated."""
        return self.samples[0].token_ids

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        """Log-probabilities of the first sample's tokens; empty if not requested."""
        return self.samples[0].logprobs

    @property
    def trace(self) -> Trace:
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

    def __repr__(self) -> str:
        if len(self.samples) == 1:
            return f"Completion(prompt={shown(self.prompt)}, {repr(self.samples[0]).removeprefix('Sample(')}"
        return (
            f"Completion(prompt={shown(self.prompt)}, {len(self.samples)} samples, text={shown(self.text)})"
        )

    def _repr_html_(self) -> str:
        return html.fragment(*(block for sample in self.samples for block in _blocks(self.prompt, sample)))

    if not TYPE_CHECKING:  # a type checker knows the attributes that there are

        def __getattr__(self, name: str) -> Any:
            raise missing(self, name, OF_COMPLETION)

        def __getitem__(self, key: Any) -> Any:
            raise TypeError(
                "A Completion is no list and no dict: generate() returns one for a single prompt, a list of "
                "them for a list of prompts. Its text is out.text; out.samples are all of its samples."
            )


def _blocks(prompt: str, sample: Sample) -> Iterator[str]:
    """Yield a sample as HTML: its text in the colours of its trace, if it has one, and its facts."""
    yield from (
        html.trace(prompt, sample.trace) if sample.trace else [html.text(prompt, [html.Piece(sample.text)])]
    )
    ended = sample.finish_reason + (f" {sample.matched!r}" if sample.matched is not None else "")
    score = "" if sample.score is None else f"score {sample.score:.4g}"
    yield html.facts(counted(sample.completion_tokens, "token"), ended, score, sample.error or "")


class Completions:
    """Collects the events of prompts into their completions; the id of a request is its prompt's index."""

    def __init__(self, rows: Iterable[PromptRow], tokenizer: Tokenizer) -> None:
        self._tokenizer, self._rows = tokenizer, [(row, views()) for row in rows]

    def add(self, event: Event) -> None:
        """Add an event of one of the prompts."""
        for collector in self._rows[int(event.request)]:
            collector.add(event)

    def done(self) -> list[Completion]:
        """Return the completions, once all samples have ended."""
        return [self._completion(*row) for row in self._rows]

    def _completion(self, row: PromptRow, of_row: Views) -> Completion:
        samples = (
            Sample.of(
                end,
                row.scores.of(end.sample),
                records(of_row.of(end.sample), self._tokenizer, run=row.id, sample=end.sample),
                row.ids.of(end.sample),
            )
            for end in row.ended
        )
        return Completion(row.prompt, tuple(samples), row.scores.prompt or (), row.prompt_ids)


_Habits = Mapping[str, str]  # from names elsewhere, separated by blanks, to what there is here

_OF_BOTH: _Habits = {
    "generated_text generated_texts output output_text content message response answer": "text",
    "stop_reason matched_stop stopping_word": "matched, beside finish_reason",
    "output_ids output_token_ids sequences": "token_ids",
    "cumulative_logprob scores": "logprobs, if the call asks for them",
}
OF_SAMPLE: _Habits = {
    **_OF_BOTH,
    "usage": "prompt_tokens and completion_tokens",
    "num_cached_tokens": "cached_tokens",
    "prompt_token_ids prompt": "that of the Completion",
}
OF_COMPLETION: _Habits = {
    **_OF_BOTH,
    "outputs choices generations candidates": "samples, as in out.samples[0].text; out.text is the first",
    "usage prompt_tokens completion_tokens": "samples[0].prompt_tokens and samples[0].completion_tokens",
    "num_cached_tokens cached_tokens": "samples[0].cached_tokens",
    "matched score value": "samples[0], which has it for the first sample",
    "prompt_ids input_ids": "prompt_token_ids",
}
OF_LLM: _Habits = {
    "complete create_completion completions invoke predict infer": "generate",
    "create_chat_completion chat_completion": "chat",
    "beam_search": "generate, with beams=N",
    "encode tokenize get_tokenizer": "tokenizer, as in llm.tokenizer.encode(text)",
    "generate_stream stream_generate": "stream",
    "llm_engine": "engine",
    "model config": "spec",
    "shutdown": "close",
}


def missing(value: object, name: str, habits: _Habits) -> AttributeError:
    """Return the error of an attribute that a value does not have."""
    instead = next((attribute for names, attribute in habits.items() if name in names.split()), "")
    fault = f"{type(value).__name__} has no attribute {name!r}."
    return AttributeError(f"{fault} Take {instead}." if instead else fault, name=name, obj=value)


_EACH = 0.1  # seconds between two drawings
_WAIT = 1.0  # seconds before the first drawing, so that short calls draw nothing
_CELLS = 24

State = Callable[[float], tuple[int, str]]  # returns at a time what is done, and what else the line says


def is_watched(stream: TextIO) -> bool:
    """Return whether somebody sees the stream: a terminal, or the output of a notebook's cell."""
    ask = getattr(stream, "isatty", lambda: False)  # a program's own stream may have write() alone
    is_terminal = not getattr(stream, "closed", False) and ask()
    return is_terminal or type(stream).__module__ == "ipykernel.iostream"


def state_of(meter: Meter) -> State:
    """Return the state of a run: samples done, and speed, time left and prompts in prefill as text."""

    def state(now: float) -> tuple[int, str]:
        pace = meter.pace(now)
        speed = "" if pace.speed is None else f"{pace.speed:,.0f} tok/s"
        left = "" if not pace.left else f"{clock(pace.left)} left"
        return pace.done, ", ".join(filter(None, (speed, left, pace.reading)))

    return state


class Bar:
    """Draws the progress of `total` results. `progress`: None draws for who watches, after a second.

    The last line stays. A context manager, so that the line ends with the call, also in an error.
    """

    def __init__(
        self,
        total: int,
        state: State,
        progress: bool | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._state, self._now = total, state, now
        self._is_on = sys.stderr is not None and (is_watched(sys.stderr) if progress is None else progress)
        self._begun = now()
        self._due = self._begun + (_WAIT if progress is None else 0.0)
        self._width = 0  # of the line that is drawn

    def tick(self) -> None:
        """Draw the line if it is time."""
        if self._is_on and (now := self._now()) >= self._due:
            self._due = now + _EACH
            self._draw(now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._draw(self._now(), end="\n")

    def _draw(self, now: float, end: str = "") -> None:
        done, state = self._state(now)
        marks = "#" * (_CELLS * done // max(1, self._total))
        took = f"{clock(now - self._begun)} taken" if done == self._total else ""
        width = max(1, shutil.get_terminal_size().columns - 1)
        words = ", ".join(filter(None, (f"{done:,} of {self._total:,}", state, took)))
        line = f"[{marks:.<{_CELLS}}] {words}"[:width]
        with suppress(OSError, ValueError):  # stderr is closed; the results matter more
            print(f"\r{line:<{min(self._width, width)}}", end=end, file=sys.stderr, flush=True)
        self._width = len(line)

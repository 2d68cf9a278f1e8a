"""What the events of a call add to its answers: content, reasoning, tool calls, tokens, usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gencli.core.events import Error, Event, Finish, PromptScores, Token, TokenLogprobs
from gencli.server.wire.errors import ApiError
from gencli.structured.validate.select import compact
from gencli.structured.validate.thinking import ThinkingSplitter

__all__ = ["Answers", "Delta", "Shape", "ToolCall", "Usage", "usage_body"]


@dataclass(frozen=True, slots=True)
class Shape:
    """How a text becomes an answer.

    `is_live`: text goes out while it is generated; otherwise at its end, when it has been checked or chosen.
    Text up to `marker` is reasoning. Text from `trigger` on is tool calls, of which only the first counts
    with `has_one_call`; `has_only_calls`: the whole text is calls; `is_named`: the request has named the
    function.
    """

    is_live: bool = True
    marker: str = ""
    trigger: str = ""
    has_only_calls: bool = False
    has_one_call: bool = False
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a function; `arguments` is a JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Delta:
    """What an event adds to the answer of a sample. `reason` is set at its end, as OpenAI names it.

    `matched` is the stop string or id that ended the text. `faults`: what is wrong with a text that had to
    have a structure; None where nothing was checked.
    """

    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    reason: str | None = None
    matched: str | int | None = None
    faults: tuple[str, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it adds nothing that a client sees."""
        return not (self.content or self.reasoning or self.calls or self.logprobs or self.reason)


@dataclass(slots=True)
class Usage:
    """Token counts of a call: each prompt once, all samples of the answer."""

    prompts: dict[str, int] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    completion: int = 0
    reasoning: int = 0

    def add(self, end: Finish) -> None:
        """Count a sample."""
        name = end.request
        self.prompts[name] = end.prompt_tokens
        self.cached[name] = min(end.cached_tokens, self.cached.get(name, end.cached_tokens))
        self.completion += end.completion_tokens

    @property
    def prompt(self) -> int:
        """The number of prompt tokens."""
        return sum(self.prompts.values())


class _Sample:
    """The text of one sample on its way into an answer."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._thinking = ThinkingSplitter(shape.marker) if shape.marker else None
        self._calls = ThinkingSplitter(shape.trigger) if shape.trigger else None
        self._space = ""  # white space that may stand before a call
        self.num_thought = 0

    def token(self, event: Token) -> Delta:
        if self._thinking and not self._thinking.is_over:
            self.num_thought += len(event.ids)
        reasoning, content = self._split(event.text) if self._shape.is_live else ("", "")
        return Delta(content, reasoning, ids=event.ids, logprobs=event.logprobs)

    def _split(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the content that a piece of text adds."""
        reasoning = ""
        if self._thinking:
            pieces = self._thinking.feed(text)
            reasoning, text = pieces.thinking.removesuffix(self._shape.marker), pieces.rest
        if self._calls:
            if self._calls.is_over:
                return reasoning, ""
            text = self._space + self._calls.feed(text).thinking.removesuffix(self._shape.trigger)
            kept = text.rstrip()
            self._space = text[len(kept) :]
            return reasoning, kept
        return reasoning, text

    def end(self, event: Finish) -> Delta:
        verdict = event.verdict
        calls = self._tool_calls(event)
        content, reasoning = self._rest(event, has_calls=bool(calls))
        reason = "length" if event.reason == "length" else "stop"
        return Delta(
            content,
            reasoning,
            calls,
            reason="tool_calls" if calls and not self._shape.is_named else reason,
            matched=event.matched if event.reason == "stop" else None,
            faults=verdict.faults if verdict else None,
        )

    def _tool_calls(self, event: Finish) -> tuple[ToolCall, ...]:
        if not self._shape.trigger or event.verdict is None or not event.verdict.is_valid:
            return ()
        calls = [ToolCall(call["name"], compact(call["arguments"])) for call in event.verdict.value or ()]
        return tuple(calls[:1] if self._shape.has_one_call else calls)

    def _rest(self, event: Finish, *, has_calls: bool) -> tuple[str, str]:
        """Return the content and the reasoning that were held back until the end."""
        verdict, marker = event.verdict, self._shape.marker
        if not self._shape.is_live:
            thinking = (verdict.thinking or "") if verdict else ""
            text = verdict.written if verdict and verdict.is_valid else event.text
            if has_calls:
                is_text = not self._shape.has_only_calls
                text = text.partition(self._shape.trigger)[0].rstrip() if is_text else ""
            return text, thinking.removesuffix(marker)
        thinking = self._thinking.finish().thinking if self._thinking else ""
        if not self._calls:
            return "", thinking
        if not self._calls.is_over:
            return self._space + self._calls.finish().thinking, thinking
        before, trigger, rest = event.text.partition(self._shape.trigger)
        # Calls that were cut, or are wrong, are the text that they are.
        return "" if has_calls else before[len(before.rstrip()) :] + trigger + rest, thinking


class Answers:
    """The answers of a call: sample j of prompt i has the index i * n + j.

    `names` are the ids of the requests, in the order of the prompts.
    """

    def __init__(self, names: Sequence[str], n: int, shape: Shape) -> None:
        self._places: Mapping[str, int] = {name: place for place, name in enumerate(names)}
        self._n = n
        self._samples = [_Sample(shape) for _ in range(n * len(names))]
        self.usage = Usage()
        self.scores: dict[int, PromptScores] = {}  # by prompt
        self.num_open = len(self._samples)

    def __len__(self) -> int:
        return len(self._samples)

    def prompt_of(self, index: int) -> int:
        """Return the place of the prompt of an answer."""
        return index // self._n

    def delta(self, event: Event) -> tuple[int, Delta] | None:
        """Return the index of the answer and what the event adds; None for an event about a prompt.

        Raises ApiError for a sample that has failed, or that was interrupted.
        """
        place = self._places[event.request]
        if isinstance(event, PromptScores):
            self.scores[place] = event
            return None
        index = place * self._n + event.sample
        if isinstance(event, Error):
            raise _failure(event)
        if isinstance(event, Token):
            return index, self._samples[index].token(event)
        if isinstance(event, Finish):
            return index, self._ended(index, event)
        return None

    def _ended(self, index: int, event: Finish) -> Delta:
        if event.reason == "interrupted":
            raise ApiError(503, "The server is shutting down.", code="shutdown")
        if event.matched == "max_time" and not event.completion_tokens:
            raise ApiError(504, "The time limit has passed while the request waited.", code="timeout")
        self.num_open -= 1
        self.usage.add(event)
        self.usage.reasoning += self._samples[index].num_thought
        return self._samples[index].end(event)


def _failure(event: Error) -> ApiError:
    if event.type == "EmptySupport":  # the request itself rules all tokens out
        return ApiError(400, event.message, code="empty_support")
    if event.type == "GenerationError" and "memory is full" in event.message:
        return ApiError(503, event.message, code="out_of_memory")
    if event.type == "GenerationError":  # its stop pattern or grammar takes too long
        return ApiError(400, event.message, code="generation_failed")
    return ApiError(500, event.message, code=event.type)


def usage_body(usage: Usage) -> dict[str, Any]:
    """Return the object `usage`."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached.values())},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }

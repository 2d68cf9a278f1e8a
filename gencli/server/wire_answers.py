"""Answers of a call, accumulated from its events (content, reasoning, tool calls, tokens, usage), and log-
probabilities in OpenAI's formats: a list of objects for chat, parallel lists for completions.
"""

from __future__ import annotations

import math
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gencli.core.events import Alternative, Error, Event, Finish, PromptScores, Token, TokenLogprobs, joined
from gencli.server.wire_fields import ApiError
from gencli.structured.output_spec import ThinkingSplitter
from gencli.structured.tool_calls import CallPart, CallStream, FoundCalls, ToolFormat
from gencli.structured.tool_plans import Calls
from gencli.text.tokenizer import Tokenizer
from processors.row_view import RowView


@dataclass(frozen=True, slots=True)
class Shape:
    """How a text becomes an answer.

    `is_live`: text is sent while it is generated; otherwise at its end, after it was checked or chosen.
    `marker`: text up to it is reasoning. `tools`: the format of tool calls. `has_one_call`: calls after the
    first are ignored. `has_only_calls`: the text has no free text. `is_named`: the request names the
    function. `has_answer`: a text that is no call is a document. `has_reasoning`: reasoning is shown.
    """

    is_live: bool = True
    marker: str = ""
    tools: ToolFormat | None = None
    has_only_calls: bool = False
    has_one_call: bool = False
    is_named: bool = False
    has_answer: bool = False
    has_reasoning: bool = True


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """Increment of a sample's answer from one event. `reason` is set at its end, in OpenAI's terms.

    `views`: explanations of the tokens. `matched`: the stop string or id that ended the text. `faults`:
    faults of a text with a required structure; None if nothing was checked.
    """

    content: str = ""
    reasoning: str = ""
    calls: tuple[CallPart, ...] = ()
    ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    views: tuple[RowView, ...] = ()
    reason: str | None = None
    matched: str | int | None = None
    faults: tuple[str, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the increment has nothing that a client sees."""
        seen = (self.content, self.reasoning, self.calls, self.logprobs, self.views, self.reason)
        return not any(seen)


def joined_deltas(deltas: Sequence[AnswerDelta]) -> AnswerDelta:
    """Return the increments of an answer, at least one, as one."""
    last = deltas[-1]
    return AnswerDelta(
        "".join(delta.content for delta in deltas),
        "".join(delta.reasoning for delta in deltas),
        tuple(part for delta in deltas for part in delta.calls),
        tuple(token_id for delta in deltas for token_id in delta.ids),
        tuple(entry for delta in deltas for entry in delta.logprobs),
        tuple(view for delta in deltas for view in delta.views),
        last.reason,
        last.matched,
        last.faults,
    )


@dataclass(slots=True)
class Usage:
    """Token counts of a call: each prompt once, and all samples."""

    prompts: dict[str, int] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    completion: int = 0
    reasoning: int = 0

    def add(self, end: Finish) -> None:
        name = end.request
        self.prompts[name] = end.prompt_tokens
        self.cached[name] = min(end.cached_tokens, self.cached.get(name, end.cached_tokens))
        self.completion += end.completion_tokens

    @property
    def prompt(self) -> int:
        return sum(self.prompts.values())

    @property
    def num_cached(self) -> int:
        """Number of prompt tokens taken from the prefix cache."""
        return sum(self.cached.values())


class _SampleAnswer:
    """Converts the text of one sample to its answer."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._thinking = ThinkingSplitter(shape.marker) if shape.marker else None
        tools, only, has_one = shape.tools, shape.has_only_calls, shape.has_one_call
        self._calls = CallStream(tools, has_only_calls=only, has_one=has_one) if tools else None
        self._held: list[Token] = []  # tokens of which nothing is sent before the end; earlier attempts first
        self.num_thought = 0

    def token(self, event: Token) -> AnswerDelta:
        if not self.shape.is_live:
            self._held.append(event)
            return AnswerDelta()
        reasoning, text = "", event.text
        if self._thinking:
            self.num_thought += 0 if self._thinking.is_over else len(event.ids)
            pieces = self._thinking.feed(text)
            reasoning, text = pieces.thinking.removesuffix(self.shape.marker), pieces.result
        parts = self._calls.feed(text) if self._calls else FoundCalls(text)
        return AnswerDelta(parts.text, reasoning, parts.calls, event.ids, event.logprobs, event.views)

    def end(self, event: Finish) -> AnswerDelta:
        verdict, is_cut, calls = event.verdict, event.reason == "length", self._calls
        if self.shape.is_live:  # what is held might have become a marker or a call
            text = calls.finish().text if calls else ""
            delta = AnswerDelta(text, self._thinking.finish().thinking if self._thinking else "")
        else:
            delta = self._whole(event)
        reason = "length" if is_cut else "stop"
        if calls and calls.count and calls.is_whole and (calls.is_over or not is_cut):
            reason = "stop" if self.shape.is_named else "tool_calls"
        return replace(
            delta,
            reason=reason,
            matched=event.matched if event.reason == "stop" else None,
            faults=verdict.faults if verdict else None,
        )

    def _whole(self, event: Finish) -> AnswerDelta:
        # A text of which nothing was sent, with the tokens of the last attempt.
        verdict, last = event.verdict, self._last(event.completion_tokens)
        thinking = (verdict.thinking if verdict else None) or ""
        length = 0
        for held in last if thinking else ():
            self.num_thought += len(held.ids) if length < len(thinking) else 0
            length += len(held.text)
        calls: tuple[CallPart, ...] = ()
        has_calls = verdict is not None and isinstance(verdict.value, Calls)
        if self._calls is None or (self.shape.has_answer and not has_calls):
            text = verdict.written if verdict and verdict.is_valid else event.text
        else:
            fed = self._calls.feed(event.text)
            text, calls = fed.text + self._calls.finish().text, fed.calls
        tokens = joined([Token(event.request, event.sample, "", ()), *last])
        thinking = thinking.removesuffix(self.shape.marker)
        return AnswerDelta(text, thinking, calls, tokens.ids, tokens.logprobs, tokens.views)

    def _last(self, count: int) -> list[Token]:
        before, last = sum(len(held.ids) for held in self._held) - count, []
        for held in self._held:
            skip = max(before, 0)
            before -= len(held.ids)
            if skip < len(held.ids):
                ids, logprobs, views = held.ids[skip:], held.logprobs[skip:], held.views[skip:]
                last.append(replace(held, ids=ids, logprobs=logprobs, views=views))
        return last


class Answers:
    """A call's answers: sample j of prompt i has index i * n + j. `shapes`: by request, in prompt order."""

    def __init__(self, shapes: Mapping[str, Shape], n: int) -> None:
        self._prompts: Mapping[str, int] = {name: index for index, name in enumerate(shapes)}
        self._n = n
        self._samples = [_SampleAnswer(shape) for shape in shapes.values() for _ in range(n)]
        self.usage = Usage()
        self.scores: dict[int, PromptScores] = {}  # by prompt
        self.num_open = len(self._samples)

    def __len__(self) -> int:
        return len(self._samples)

    def prompt_of(self, index: int) -> int:
        return index // self._n

    def delta(self, event: Event) -> tuple[int, AnswerDelta] | None:
        """Return the index of the answer and its increment; None for an event about a prompt.

        Raises ApiError for a sample that has failed, or that was interrupted.
        """
        prompt = self._prompts[event.request]
        if isinstance(event, PromptScores):
            self.scores[prompt] = event
            return None
        if isinstance(event, Error):
            raise _failure(event)
        index = prompt * self._n + event.sample
        sample = self._samples[index]
        if isinstance(event, Token):
            delta = sample.token(event)
        elif isinstance(event, Finish):
            if event.reason == "interrupted":
                raise ApiError(503, "The server is shutting down.", code="shutdown")
            if event.is_late:
                raise ApiError(504, "The time limit has passed while the request waited.", code="timeout")
            self.num_open -= 1
            self.usage.add(event)
            delta = sample.end(event)
            self.usage.reasoning += sample.num_thought
        else:
            return None
        return index, delta if sample.shape.has_reasoning else replace(delta, reasoning="")


def _failure(event: Error) -> ApiError:
    if event.type == "EmptySupport":  # the request itself masks all tokens
        return ApiError(400, event.message, code="empty_support")
    if event.type == "GenerationError" and "memory is full" in event.message:
        return ApiError(503, event.message, code="out_of_memory")
    if event.type == "GenerationError":  # the request's stop pattern or grammar takes too long
        return ApiError(400, event.message, code="generation_failed")
    return ApiError(500, event.message, code=event.type)


def usage_body(usage: Usage) -> dict[str, Any]:
    """Return the object `usage`."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.num_cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


_NEVER = -9999.0  # stands for -inf, which JSON lacks; OpenAI writes the same


def finite(logprob: float) -> float:
    """Return a finite number that JSON can represent."""
    return logprob if math.isfinite(logprob) else _NEVER


@dataclass(frozen=True, slots=True)
class TokenStyle:
    """How tokens and their log-probabilities are written in replies.

    `as_ids`: the text of a token is "token_id:5". `is_processed`: numbers are those after all stages, not
    those of the model. `has_bans`: the cause that masks a token is shown as well.
    """

    tokenizer: Tokenizer
    as_ids: bool = False
    is_processed: bool = False
    has_bans: bool = False

    def bytes(self, token_id: int) -> bytes:
        """Return the token's bytes, perhaps part of a character; for a special token those of its name."""
        table = self.tokenizer.token_bytes
        stored = table[token_id] if token_id < len(table) else b""
        return stored or self.tokenizer.decode([token_id], skip_special=False).encode()

    def text(self, token_id: int) -> str:
        """Return the text of the token; partial characters become U+FFFD."""
        if self.as_ids:
            return f"token_id:{token_id}"
        return self.bytes(token_id).decode(errors="replace")

    def number(self, alternative: Alternative) -> float:
        return finite(alternative.processed if self.is_processed else alternative.logprob)

    def best(self, entry: TokenLogprobs) -> Sequence[Alternative]:
        return entry.processed_top if self.is_processed else entry.top


class TextOffsets:
    """Counts where in a text each token begins, in characters, whatever the tokens are called in the reply.

    `text` is what the tokens `ids` at its beginning are shown as: it may lack a space of the first one.
    """

    def __init__(self, tokenizer: Tokenizer, ids: Sequence[int] = (), text: str = "") -> None:
        self._bytes, self._special = tokenizer.token_bytes, tokenizer.special_ids
        self._decoder = getincrementaldecoder("utf-8")("replace")
        whole = b"".join(map(self._of, ids)).decode(errors="replace")
        self._count = _spaces(text) - _spaces(whole) if ids else 0

    def after(self, ids: Sequence[int]) -> list[int]:
        offsets = []
        for token in ids:
            offsets.append(max(0, self._count))
            self._count += len(self._decoder.decode(self._of(token)))
        return offsets

    def _of(self, token: int) -> bytes:
        is_shown = token not in self._special and token < len(self._bytes)
        return self._bytes[token] if is_shown else b""


def _spaces(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def chat_logprobs(entries: Sequence[TokenLogprobs], style: TokenStyle) -> dict[str, Any]:
    """Return the object `logprobs` of a chat choice."""
    return {"content": token_entries(entries, style), "refusal": None}


def token_entries(entries: Sequence[TokenLogprobs], style: TokenStyle) -> list[dict[str, Any]]:
    """Return an object for each token, with its alternatives."""

    def about(token: Alternative) -> dict[str, Any]:
        return {
            "token": style.text(token.id),
            "logprob": style.number(token),
            "bytes": list(style.bytes(token.id)),
            **({"banned_by": token.banned_by or None} if style.has_bans else {}),
        }

    return [{**about(entry.chosen), "top_logprobs": [*map(about, style.best(entry))]} for entry in entries]


def completion_logprobs(
    ids: Sequence[int], entries: Sequence[TokenLogprobs | None], style: TokenStyle, offsets: TextOffsets
) -> dict[str, Any]:
    """Return the object `logprobs` of a completion: lists with an entry for each id, null if unknown.

    The token itself is always among its alternatives, with the same number. `offsets`: of the tokens before.
    `banned_by` lists the masked alternatives.
    """
    texts = [style.text(token_id) for token_id in ids]
    lists = {
        "tokens": texts,
        "token_logprobs": [None if entry is None else style.number(entry.chosen) for entry in entries],
        "top_logprobs": [None if entry is None else _top(entry, style) for entry in entries],
        "text_offset": offsets.after(ids),
    }
    if style.has_bans:
        lists["banned_by"] = [None if entry is None else _bans(entry, style) for entry in entries]
    return lists


def _top(entry: TokenLogprobs, style: TokenStyle) -> dict[str, float]:
    # The alternatives by text: for equal texts the likelier one, but always the token's own.
    logprobs: dict[str, float] = {}
    for token in style.best(entry):
        logprobs.setdefault(style.text(token.id), style.number(token))
    return {**logprobs, style.text(entry.chosen.id): style.number(entry.chosen)}


def _bans(entry: TokenLogprobs, style: TokenStyle) -> dict[str, str]:
    shown = (*style.best(entry), entry.chosen)
    return {style.text(token.id): token.banned_by for token in shown if token.banned_by}


def prompt_logprobs(
    entries: Sequence[TokenLogprobs | None], style: TokenStyle
) -> list[dict[str, dict[str, Any]] | None]:
    """Return vLLM's `prompt_logprobs`: for each position its tokens by id; null for the first position."""

    def about(rank: int, token: Alternative) -> dict[str, Any]:
        return {"logprob": finite(token.logprob), "rank": rank, "decoded_token": style.text(token.id)}

    return [
        None
        if entry is None
        else {
            str(token.id): about(rank, token)
            for rank, token in [(entry.rank, entry.chosen), *enumerate(entry.top, start=1)]
        }
        for entry in entries
    ]

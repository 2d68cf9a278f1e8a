"""`Scorer`: scores items on an engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from gencli.core.events import Error, PromptScores, TokenLogprobs
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.errors import GencliError, GenerationError, UsageError
from gencli.models.base import ModelSpec
from gencli.scoring.items import ChatItem, ChoiceItem, Item, PairItem, TextItem
from gencli.scoring.rows import ScoreRow
from gencli.scoring.scores import ChoiceScore, PairScore, Score, TextScore
from gencli.scoring.totals import Totals, count_words
from gencli.scoring.windows import (
    CONVENTIONS,
    Convention,
    Window,
    cut_window,
    encoded,
    pair_window,
    prefix_id,
    text_windows,
)
from gencli.templates.conversation import render_conversation
from gencli.text.tokenizer import Tokenizer

__all__ = ["Scorer", "make_convention"]

_BLOCK = 64  # items that are scored at once
_LLAMA_WINDOW = 512


def make_convention(
    name: CONVENTIONS, spec: ModelSpec, tokenizer: Tokenizer, *, window: int | None, stride: int | None
) -> Convention:
    """Return the convention on a model. Raises UsageError for a window or stride that it cannot have.

    `window` is by default the model's context, for llama 512; `stride` half of the window.
    """
    if stride is not None and name != "strided":
        raise UsageError(f"`stride` is for the convention strided, but it is {name}.")
    size = min(spec.context, _LLAMA_WINDOW) if window is None and name == "llama" else window or spec.context
    if not 2 <= size <= spec.context:
        raise UsageError(f"`window` is {size}, but {spec.name} reads 2 to {spec.context} tokens at once.")
    step = max(1, size // 2) if stride is None else stride
    if not 1 <= step <= size:
        raise UsageError(f"`stride` is {step}, but has to be 1 to {size}, the window.")
    has_bos = tokenizer.bos_id is not None and tokenizer.encode("a")[:1] == [tokenizer.bos_id]
    return Convention(name, size, step, has_bos)


@dataclass(frozen=True, slots=True)
class _Part:
    """Windows of a text or continuation, and what its totals count."""

    text: str
    tokens: int
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The parts of an item: of a choice its choices, then these without the context."""

    item: Item
    parts: tuple[_Part, ...]


class Scorer:
    """Scores texts, pairs, choices and chats. `top`: alternatives in the entries of each token."""

    def __init__(
        self, engine: Engine, spec: ModelSpec, tokenizer: Tokenizer, convention: Convention, *, top: int = 0
    ) -> None:
        self._engine, self._spec, self.tokenizer = engine, spec, tokenizer
        self.convention, self._top = convention, top
        self._num_requests = 0

    def scores(self, items: Iterable[Item]) -> Iterator[Score]:
        """Yield the score of each item, in order. Raises the error of the first that cannot be."""
        for found in self.outcomes(items):
            if isinstance(found, GencliError):
                raise found
            yield found

    def outcomes(self, items: Iterable[Item]) -> Iterator[Score | GencliError]:
        """Yield the score of each item, in order, or the error for one that cannot be scored."""
        source = iter(items)
        while block := list(islice(source, _BLOCK)):
            plans = [self._planned(item) for item in block]
            windows = [
                window
                for plan in plans
                if isinstance(plan, _Plan)
                for part in plan.parts
                for window in part.windows
            ]
            found = iter(self.window_entries(windows))
            for plan in plans:
                yield self._scored(plan, found) if isinstance(plan, _Plan) else plan

    def rows(self, rows: Iterable[ScoreRow]) -> Iterator[tuple[ScoreRow, Score | GencliError]]:
        """Yield each row with its score or error, in order; rows are read ahead by a block."""
        source = iter(rows)
        while block := list(islice(source, _BLOCK)):
            found = self.outcomes([row.item for row in block if not isinstance(row.item, GencliError)])
            for row in block:
                yield row, row.item if isinstance(row.item, GencliError) else next(found)

    def interrupt(self) -> None:
        """End the scoring; `rows` then raises GenerationError. Safe in a signal handler."""
        self._engine.interrupt()

    def window_entries(self, windows: Sequence[Window]) -> list[tuple[TokenLogprobs, ...]]:
        """Return the entries of the scored tokens of each window."""
        first, found = self._num_requests, dict[str, tuple[TokenLogprobs, ...]]()
        self._num_requests += len(windows)
        firsts = {}
        for number, window in enumerate(windows, start=first):
            name = f"score {number}"
            firsts[name] = window.first
            self._engine.submit(
                Request(
                    name,
                    window.ids,
                    limits=Limits(max_tokens=0),
                    prompt_logprobs=self._top,
                    score_from=window.first,
                )
            )
        for event in self._engine.run():
            if isinstance(event, PromptScores):
                scores = event.scores[firsts[event.request] :]
                found[event.request] = tuple(entry for entry in scores if entry is not None)
            elif isinstance(event, Error):
                raise GenerationError(event.message)
        if len(found) < len(windows):
            raise GenerationError("The scoring was interrupted.")
        return [found[name] for name in firsts]

    def _planned(self, item: Item) -> _Plan | GencliError:
        try:
            return _Plan(item, tuple(self._parts(item)))
        except GencliError as error:
            return error

    def _parts(self, item: Item) -> Iterator[_Part]:
        if isinstance(item, TextItem):
            prefix = None if self.convention.name == "strided" else self._prefix
            ids = encoded(item.text, self.tokenizer, prefix)
            windows = tuple(text_windows(ids, self.convention, prefix))
            yield _Part(item.text, len(ids), self._checked(windows))
        elif isinstance(item, ChatItem):
            yield self._chat_part(item)
        elif isinstance(item, PairItem):
            yield self._pair_part(item.context, item.continuation)
        else:
            yield from (self._pair_part(item.context, choice) for choice in item.choices)
            if item.context and self._has_prefix:
                yield from (self._pair_part("", choice) for choice in item.choices)

    @property
    def _prefix(self) -> int:
        return prefix_id(self.tokenizer, self._spec.eos_ids)

    @property
    def _has_prefix(self) -> bool:
        tokenizer = self.tokenizer
        return tokenizer.bos_id is not None or bool((*tokenizer.eos_ids, *self._spec.eos_ids))

    def _pair_part(self, context: str, continuation: str) -> _Part:
        prefix = self._prefix if self._has_prefix or not context else None
        window = pair_window(context, continuation, self.tokenizer, prefix, self.convention.window)
        return _Part(continuation, len(window.ids) - window.first, self._checked((window,)))

    def _chat_part(self, item: ChatItem) -> _Part:
        before = render_conversation(self.tokenizer, item.messages[:-1])
        answer = item.messages[-1]["content"]
        head = self.tokenizer.encode(before, special=False)
        whole = self.tokenizer.encode(before + answer, special=False)
        window = cut_window(head, whole[len(head) :], self.convention.window)
        return _Part(answer, len(window.ids) - window.first, self._checked((window,)))

    def _checked(self, windows: tuple[Window, ...]) -> tuple[Window, ...]:
        """Return the windows. Raises UsageError if there is nothing to score."""
        if not any(window.first < len(window.ids) for window in windows):
            raise UsageError("There is no token to score: nothing precedes the only one.")
        return windows

    def _scored(self, plan: _Plan, found: Iterator[tuple[TokenLogprobs, ...]]) -> Score:
        entries = [tuple(entry for _ in part.windows for entry in next(found)) for part in plan.parts]
        item, convention = plan.item, self.convention
        if isinstance(item, TextItem):
            return TextScore(
                plan.parts[0].tokens, self._totals(item.text, entries[0]), convention, entries[0]
            )
        pairs = [self._pair(part, own) for part, own in zip(plan.parts, entries, strict=True)]
        if not isinstance(item, ChoiceItem):
            return pairs[0]
        count = len(item.choices)
        alone = pairs[count:] or ([] if item.context else pairs)
        return ChoiceScore(
            tuple(pairs[:count]), tuple(one.logprob for one in alone) if alone else None, convention
        )

    def _totals(self, text: str, entries: Sequence[TokenLogprobs]) -> Totals:
        """Totals of a text; words, and bytes of the text itself, only where every token is scored."""
        is_whole = self.convention.name == "lm-eval"
        known = self.tokenizer.token_bytes
        size = len(text.encode()) if is_whole else sum(len(known[one.chosen.id]) for one in entries)
        words = count_words(text) if is_whole else None
        return Totals.of((one.chosen.logprob for one in entries), num_bytes=size, words=words)

    def _pair(self, part: _Part, entries: tuple[TokenLogprobs, ...]) -> PairScore:
        totals = Totals.of(
            (one.chosen.logprob for one in entries),
            num_bytes=len(part.text.encode()),
            words=count_words(part.text),
        )
        logprob = math.fsum(one.chosen.logprob for one in entries)
        is_greedy = all(one.rank == 1 for one in entries)
        return PairScore(part.text, logprob, len(entries), is_greedy, totals, self.convention, entries)

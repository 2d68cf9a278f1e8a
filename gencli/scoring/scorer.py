"""`TextScorer`: scores items (a text, a continuation of a context, choices after a context, the last turn of
a chat) on an engine, under the model alone or under a chain.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from gencli.config.job import Job, make_request
from gencli.core.events import Error, Event, Finish, PromptScores, Token, TokenLogprobs
from gencli.core.request import NO_DRAFTER, Drafting, Limits, Request, Stops
from gencli.engine.engine import Engine
from gencli.errors import GencliError, GenerationError, UsageError
from gencli.models.model_runner import ModelSpec
from gencli.scoring.text_scores import (
    CONVENTIONS,
    MODES,
    ChoiceScore,
    Convention,
    PairScore,
    Score,
    ScoredWindow,
    TextScore,
    Totals,
    count_words,
    cut_window,
    encoded,
    pair_window,
    prefix_id,
    text_windows,
)
from gencli.templates.chat_templates import Message, check_messages, render_conversation
from gencli.text.tokenizer import Tokenizer
from processors.errors import ProcessorsError

_FORMS = "Give a text; or a context with a continuation or choices; or messages, the last one an answer."


@dataclass(frozen=True, slots=True)
class TextItem:
    """A text that is scored as a whole."""

    text: str


@dataclass(frozen=True, slots=True)
class PairItem:
    """A continuation, scored after a context."""

    context: str
    continuation: str


@dataclass(frozen=True, slots=True)
class ChoiceItem:
    """Continuations of one context to compare."""

    context: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChatItem:
    """A conversation; the content of its last message is scored after the other messages."""

    messages: tuple[Message, ...]


Item = TextItem | PairItem | ChoiceItem | ChatItem


def read_item(value: Any) -> Item:
    """Return the item of a text, a pair of texts or a mapping with columns. Raises UsageError."""
    if isinstance(value, TextItem | PairItem | ChoiceItem | ChatItem):
        return value
    if isinstance(value, str):
        value = {"text": value}
    elif isinstance(value, Sequence) and len(value) == 2 and all(isinstance(part, str) for part in value):
        value = {"context": value[0], "continuation": value[1]}
    if isinstance(value, Mapping):
        return _from_columns(value)
    raise UsageError(f"{str(value)[:60]!r} cannot be scored.", hint=_FORMS)


def _from_columns(columns: Mapping[str, Any]) -> Item:
    keys = {key for key, value in columns.items() if value is not None}
    kinds = [kind for kind in ("text", "continuation", "choices", "messages") if kind in keys]
    if len(kinds) != 1:
        names = " and ".join(kinds) if kinds else ", ".join(sorted(map(str, keys))[:8]) or "nothing"
        raise UsageError(f"A row to score has {names}, but needs one form of input.", hint=_FORMS)
    (kind,) = kinds
    if kind == "messages":
        messages = check_messages(columns["messages"])
        if len(messages) < 2 or messages[-1]["role"] != "assistant" or not messages[-1]["content"]:
            raise UsageError("messages has to end with an answer: a message of the assistant with content.")
        return ChatItem(messages)
    context = _text(columns, "context") if "context" in keys and kind != "text" else ""
    if kind != "choices":
        text = _text(columns, kind)
        if not text:
            raise UsageError("An empty text has nothing to score.")
        return TextItem(text) if kind == "text" else PairItem(context, text)
    choices = columns["choices"]
    if isinstance(choices, str) or not isinstance(choices, Sequence) or len(choices) < 1:
        raise UsageError("choices has to be a list of texts.", hint=_FORMS)
    if not all(isinstance(choice, str) and choice for choice in choices):
        raise UsageError("choices has an entry that is not a text, or is empty.")
    return ChoiceItem(context, tuple(choices))


def _text(columns: Mapping[str, Any], key: str) -> str:
    value = columns[key]
    if not isinstance(value, str):
        raise UsageError(f"{key} is {str(value)[:60]!r}, but has to be a text.")
    return value


T = TypeVar("T")
_LLAMA_WINDOW = 512
_AHEAD = 4  # windows in the engine, as a multiple of those that run at once


def make_convention(
    name: CONVENTIONS, spec: ModelSpec, tokenizer: Tokenizer, *, window: int | None, stride: int | None
) -> Convention:
    """Return the convention for a model. Raises UsageError for an invalid window or stride.

    `window`: by default the model's context, for llama 512. `stride`: by default half of the window.
    """
    if stride is not None and name != "strided":
        raise UsageError(f"`stride` is for the convention strided, but `convention` is {name}.")
    size = min(spec.context, _LLAMA_WINDOW) if window is None and name == "llama" else window or spec.context
    if not 2 <= size <= spec.context:
        raise UsageError(f"`window` is {size}, but {spec.name} reads 2 to {spec.context} tokens at once.")
    step = max(1, size // 2) if stride is None else stride
    if not 1 <= step <= size:
        raise UsageError(f"`stride` is {step}, but has to be 1 to {size}, the window.")
    has_bos = tokenizer.bos_id is not None and tokenizer.encode("a")[:1] == [tokenizer.bos_id]
    return Convention(name, size, step, has_bos)


@dataclass(frozen=True, slots=True)
class Terms:
    """Conditions of scoring: the model alone without a `job`, else the model with the chain of the job.

    `seed`: for stages that draw. `max_tokens`: the limit passed to the stages; None: the context.
    """

    job: Job | None = None
    seed: int = 0
    max_tokens: int | None = None

    @property
    def mode(self) -> MODES:
        """ "raw" or "processed"."""
        return "raw" if self.job is None else "processed"

    def request(
        self, name: str, window: ScoredWindow, top: int, spec: ModelSpec, tokenizer: Tokenizer
    ) -> Request:
        """Return the request for the scored tokens of a window."""
        if self.job is None:
            limits = Limits(0)
            return Request(name, window.ids, limits=limits, prompt_logprobs=top, score_from=window.first)
        return replace(
            make_request(self.job, name, window.ids[: window.first], self.seed, tokenizer),
            given=window.ids[window.first :],
            logprobs=top,
            prompt_logprobs=None,
            n=1,
            stops=Stops(ids=self.job.stops.ids),
            limits=Limits(spec.context if self.max_tokens is None else self.max_tokens),
            finish_open=False,
            beams=None,
            best_of=None,
            contrastive=None,
            drafting=Drafting(NO_DRAFTER),
        )


@dataclass(frozen=True, slots=True)
class Task(Generic[T]):
    """An item to score under some terms; an error instead of an item is its outcome. `key`: the caller's."""

    key: T
    item: Item | Exception
    terms: Terms = field(default_factory=Terms)


@dataclass(frozen=True, slots=True)
class _WindowedText:
    """A text, continuation or answer, the number of its tokens, and its windows."""

    text: str
    tokens: int
    windows: tuple[ScoredWindow, ...]


@dataclass(slots=True, eq=False)
class _OpenTask(Generic[T]):
    """A task in the engine: its parts, and the entries that their windows have."""

    task: Task[T]
    item: Item
    parts: tuple[_WindowedText, ...]
    entries: list[list[TokenLogprobs]]
    num_open: int
    error: GencliError | None = None
    is_interrupted: bool = False


class TextScorer:
    """Scores texts, pairs, choices and chats. `top`: number of alternatives for each token."""

    def __init__(
        self, engine: Engine, spec: ModelSpec, tokenizer: Tokenizer, convention: Convention, *, top: int = 0
    ) -> None:
        self._engine, self._spec, self.tokenizer = engine, spec, tokenizer
        self.convention, self._top = convention, top
        self._num_requests = 0
        self._open: dict[str, tuple[_OpenTask[object], int, int]] = {}  # task, window, first scored position

    def scores(self, items: Iterable[Item], terms: Terms | None = None) -> Iterator[Score]:
        """Yield the score of each item, in order. Raises the error of the first one that cannot be scored."""
        scores_ahead, next_number = dict[int, Score | Exception](), 0
        tasks = (Task(number, item, terms or Terms()) for number, item in enumerate(items))
        with closing(self.run(tasks)) as outcomes:
            for number, outcome in outcomes:
                scores_ahead[number] = outcome
                while next_number in scores_ahead:
                    if isinstance(score := scores_ahead.pop(next_number), Exception):
                        raise score
                    next_number += 1
                    yield score
        if scores_ahead:
            raise GenerationError("The scoring was interrupted.")

    def run(
        self, tasks: Iterable[Task[T]], *, ahead: int | None = None
    ) -> Generator[tuple[T, Score | Exception], None, None]:
        """Yield (key, score or error) of each task when it ends; interrupted tasks yield nothing.

        Tasks are read ahead until the engine holds `ahead` windows.
        """
        max_open, source = ahead or _AHEAD * self._engine.limit, iter(tasks)
        try:
            yield from self._feed(source, max_open)
            while self._open:
                for event in self._engine.run():
                    yield from self._receive(event)
                    yield from self._feed(source, max_open)
        finally:
            if self._open:  # end all running requests, and discard their events
                self._open.clear()
                with suppress(Exception):  # the original error is raised instead
                    self._engine.interrupt()
                    for _ in self._engine.run():
                        pass

    def interrupt(self) -> None:
        """End the scoring. Safe in a signal handler."""
        self._engine.interrupt()

    def window_entries(self, windows: Sequence[ScoredWindow]) -> list[tuple[TokenLogprobs, ...]]:
        """Return the entries of the scored tokens of each window, under the model without a chain."""
        text = TextItem(" ")  # never scored: the entries of the windows are the result
        part = _WindowedText("", 0, tuple(windows))
        task = _OpenTask[object](Task(None, text), text, (part,), [[] for _ in windows], 0)
        if windows:
            self._submit(task, list(windows))
            for event in self._engine.run():
                [*self._receive(event, is_scored=False)]
        if task.error is not None:
            raise task.error
        if task.is_interrupted:
            raise GenerationError("The scoring was interrupted.")
        return [tuple(entries) for entries in task.entries]

    def _feed(self, source: Iterator[Task[T]], max_open: int) -> Iterator[tuple[T, Score | Exception]]:
        """Submit tasks until the engine holds `max_open` windows; yield those that cannot be scored."""
        while len(self._open) < max_open and (task := next(source, None)) is not None:
            if isinstance(task.item, Exception):
                yield task.key, task.item
                continue
            try:
                parts = tuple(self._parts(task.item))
                windows = [window for part in parts for window in part.windows]
                _check(task, parts)
                self._submit(_OpenTask(task, task.item, parts, [[] for _ in windows], 0), windows)
            except GencliError as error:
                yield task.key, error
            except ProcessorsError as error:  # a stage rejects the request
                yield task.key, UsageError(str(error))

    def _parts(self, item: Item) -> Iterator[_WindowedText]:
        """Yield the parts of an item: of choices the choices, then the choices without the context.

        Raises UsageError for an item that the convention cannot score.
        """
        if isinstance(item, TextItem):
            prefix = None if self.convention.name == "strided" else self._prefix
            ids = encoded(item.text, self.tokenizer, prefix)
            if self.convention.name == "lm-eval" and ids[:1] == [prefix]:
                ids = ids[1:]  # the tokenizer's own BOS is the prefix token, and not part of the text
            yield _part(item.text, len(ids), *text_windows(ids, self.convention, prefix))
        elif isinstance(item, ChatItem):
            before = render_conversation(self.tokenizer, item.messages[:-1])
            answer = item.messages[-1]["content"]
            head = self.tokenizer.encode(before, special=False)
            whole = self.tokenizer.encode(before + answer, special=False)
            window = cut_window(head, whole[len(head) :], self.convention.window)
            yield _part(answer, len(window.ids) - window.first, window)
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

    def _pair_part(self, context: str, continuation: str) -> _WindowedText:
        prefix = self._prefix if self._has_prefix or not context else None
        window = pair_window(context, continuation, self.tokenizer, prefix, self.convention.window)
        return _part(continuation, len(window.ids) - window.first, window)

    def _submit(self, task: _OpenTask[T], windows: Sequence[ScoredWindow]) -> None:
        names = list[str]()
        try:
            for number, window in enumerate(windows):
                self._num_requests += 1
                name = f"score {self._num_requests}"
                terms = task.task.terms
                self._engine.submit(terms.request(name, window, self._top, self._spec, self.tokenizer))
                self._open[name] = task, number, window.first  # type: ignore[assignment]
                names.append(name)
                task.num_open += 1
        except (GencliError, ProcessorsError):
            for name in names:
                del self._open[name]
                self._engine.cancel(name)
            raise

    def _receive(self, event: Event, *, is_scored: bool = True) -> Iterator[tuple[T, Score | Exception]]:
        if event.request not in self._open:
            return
        task, number, first = self._open[event.request]
        if isinstance(event, PromptScores):
            task.entries[number] += [entry for entry in event.scores[first:] if entry is not None]
        elif isinstance(event, Token):
            task.entries[number] += event.logprobs
        elif isinstance(event, Finish | Error):
            del self._open[event.request]
            task.num_open -= 1
            if isinstance(event, Error):
                task.error = task.error or GenerationError(event.message)
            task.is_interrupted |= isinstance(event, Finish) and event.reason == "interrupted"
            if is_scored and not task.num_open and not task.is_interrupted:
                yield task.task.key, task.error or self._score(task)  # type: ignore[misc]

    def _score(self, task: _OpenTask[T]) -> Score:
        windows = iter(task.entries)
        entries = [tuple(entry for _ in part.windows for entry in next(windows)) for part in task.parts]
        item, convention, mode = task.item, self.convention, task.task.terms.mode
        if isinstance(item, TextItem):
            totals = self._totals(item.text, entries[0], mode)
            return TextScore(task.parts[0].tokens, totals, convention, entries[0], mode)
        pairs = [self._pair(part, scores, mode) for part, scores in zip(task.parts, entries, strict=True)]
        if not isinstance(item, ChoiceItem):
            return pairs[0]
        count = len(item.choices)
        alone = pairs[count:] or ([] if item.context else pairs)
        without = tuple(pair.logprob for pair in alone) if alone else None
        return ChoiceScore(tuple(pairs[:count]), without, convention, mode)

    def _totals(self, text: str, entries: Sequence[TokenLogprobs], mode: MODES) -> Totals:
        """Return the totals of a text; words, and bytes of the text, only if every token is scored."""
        is_whole = self.convention.name == "lm-eval"
        token_bytes, words = self.tokenizer.token_bytes, count_words(text) if is_whole else None
        size = len(text.encode()) if is_whole else sum(len(token_bytes[e.chosen.id]) for e in entries)
        return Totals.of(_values(entries, mode), num_bytes=size, words=words)

    def _pair(self, part: _WindowedText, entries: tuple[TokenLogprobs, ...], mode: MODES) -> PairScore:
        text, size = part.text, len(part.text.encode())
        totals = Totals.of(_values(entries, mode), num_bytes=size, words=count_words(text))
        ranks = (entry.rank if mode == "raw" else entry.processed_rank for entry in entries)
        is_greedy = not totals.banned and all(rank == 1 for rank in ranks)
        return PairScore(text, len(entries), is_greedy, totals, self.convention, entries, mode)


def _values(entries: Iterable[TokenLogprobs], mode: MODES) -> Iterator[float]:
    return (entry.chosen.logprob if mode == "raw" else entry.chosen.processed for entry in entries)


def _check(task: Task[T], parts: Iterable[_WindowedText]) -> None:
    """Raise UsageError for several windows under a grammar, which would restart in each of them."""
    job = task.terms.job
    has_grammar = job is not None and job.assembly.chain.get("grammar") is not None
    if has_grammar and any(len(part.windows) > 1 for part in parts):
        raise UsageError(
            "A text of several windows cannot be scored under a grammar, which would begin anew in each.",
            hint="Raise `window`, or score it as a continuation.",
        )


def _part(text: str, tokens: int, *windows: ScoredWindow) -> _WindowedText:
    if not any(window.first < len(window.ids) for window in windows):
        raise UsageError("There is no token to score: the only token has none before it.")
    return _WindowedText(text, tokens, windows)

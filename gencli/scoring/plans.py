"""Plans of scoring: the windows that the model reads for an item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gencli.errors import UsageError
from gencli.models.model_runner import ModelSpec
from gencli.scoring.items import ChatItem, Item, PairItem, TextItem
from gencli.scoring.windows import (
    Convention,
    Window,
    cut_window,
    encoded,
    pair_window,
    prefix_id,
    text_windows,
)
from gencli.templates.chat_templates import render_conversation
from gencli.text.tokenizer import Tokenizer

__all__ = ["Part", "Planner"]


@dataclass(frozen=True, slots=True)
class Part:
    """Windows of a text or continuation, with the values that its totals need."""

    text: str
    tokens: int
    windows: tuple[Window, ...]


class Planner:
    """Makes the parts of items. A choice item has its choices, then the choices without the context."""

    def __init__(self, spec: ModelSpec, tokenizer: Tokenizer, convention: Convention) -> None:
        self._spec, self._tokenizer, self._convention = spec, tokenizer, convention

    def parts(self, item: Item) -> Iterator[Part]:
        """Yield the parts of an item. Raises UsageError for an item that the convention cannot score."""
        if isinstance(item, TextItem):
            prefix = None if self._convention.name == "strided" else self._prefix
            ids = encoded(item.text, self._tokenizer, prefix)
            if self._convention.name == "lm-eval" and ids[:1] == [prefix]:
                ids = ids[1:]  # the tokenizer's own BOS is the prefix token, and not part of the text
            windows = tuple(text_windows(ids, self._convention, prefix))
            yield Part(item.text, len(ids), self._checked(windows))
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
        return prefix_id(self._tokenizer, self._spec.eos_ids)

    @property
    def _has_prefix(self) -> bool:
        tokenizer = self._tokenizer
        return tokenizer.bos_id is not None or bool((*tokenizer.eos_ids, *self._spec.eos_ids))

    def _pair_part(self, context: str, continuation: str) -> Part:
        prefix = self._prefix if self._has_prefix or not context else None
        window = pair_window(context, continuation, self._tokenizer, prefix, self._convention.window)
        return Part(continuation, len(window.ids) - window.first, self._checked((window,)))

    def _chat_part(self, item: ChatItem) -> Part:
        before = render_conversation(self._tokenizer, item.messages[:-1])
        answer = item.messages[-1]["content"]
        head = self._tokenizer.encode(before, special=False)
        whole = self._tokenizer.encode(before + answer, special=False)
        window = cut_window(head, whole[len(head) :], self._convention.window)
        return Part(answer, len(window.ids) - window.first, self._checked((window,)))

    def _checked(self, windows: tuple[Window, ...]) -> tuple[Window, ...]:
        """Return the windows. Raises UsageError if there is nothing to score."""
        if not any(window.first < len(window.ids) for window in windows):
            raise UsageError("There is no token to score: nothing precedes the only one.")
        return windows

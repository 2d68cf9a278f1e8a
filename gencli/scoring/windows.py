"""Conventions of scoring a text: which tokens the model reads together, and which of them are scored.

Perplexities of different conventions are not comparable, so every result names its convention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gencli.errors import UsageError
from gencli.text.tokenizer import Tokenizer

__all__ = [
    "CONVENTIONS",
    "Convention",
    "Window",
    "cut_window",
    "encoded",
    "pair_window",
    "prefix_id",
    "text_windows",
]

CONVENTIONS = Literal["lm-eval", "strided", "llama"]


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens read together; those from index `first` (>= 1) on are scored."""

    ids: tuple[int, ...]
    first: int


@dataclass(frozen=True, slots=True)
class Convention:
    """How a text is cut into windows; `window` and `stride` count tokens.

    - lm-eval: a prefix token (BOS, else EOS), then disjoint windows; the last one is extended backwards for
      context. Every token is scored once. As in lm-evaluation-harness.
    - strided: windows that begin every `stride` tokens; a window scores the tokens that no earlier one
      scored. The first token is not scored; with `stride` = `window` the first of each window. As in the
      documentation of transformers.
    - llama: disjoint windows, the first token of each replaced by BOS if the tokenizer adds one; the second
      half of each is scored; an incomplete window at the end is not. As in llama-perplexity.
    """

    name: CONVENTIONS
    window: int
    stride: int
    has_bos: bool = False

    def record(self) -> dict[str, Any]:
        """Return the convention as JSON."""
        found: dict[str, Any] = {"name": self.name, "window": self.window}
        if self.name == "strided":
            found["stride"] = self.stride
        return found | ({"bos": self.has_bos} if self.name != "strided" else {})

    def __str__(self) -> str:
        parts = [f"window {self.window}", *([f"stride {self.stride}"] if self.name == "strided" else [])]
        return f"{self.name} ({', '.join(parts)})"


def prefix_id(tokenizer: Tokenizer, eos_ids: Sequence[int]) -> int:
    """Return the token before a text without context: BOS, else EOS. Raises UsageError if it has neither."""
    found = tokenizer.bos_id
    if found is not None:
        return found
    for ids in (tokenizer.eos_ids, tuple(eos_ids)):
        if ids:
            return ids[0]
    raise UsageError(
        "The tokenizer has neither a beginning-of-text nor an end-of-text token, which the convention puts "
        "before a text.",
        hint="Use `convention` = strided.",
    )


def encoded(text: str, tokenizer: Tokenizer, prefix: int | None) -> list[int]:
    """Return the ids of a text; no special tokens are added to a text that begins with the prefix token."""
    name = "" if prefix is None else tokenizer.decode([prefix], skip_special=False)
    return tokenizer.encode(text, special=not (name and text.startswith(name)))


def pair_window(
    context: str, continuation: str, tokenizer: Tokenizer, prefix: int | None, window: int
) -> Window:
    """Return the window of a continuation after a context.

    Spaces at the end of the context are moved to the continuation. Both are encoded together, and split at
    the length of the encoded context. An empty context becomes the prefix token. The context is truncated at
    its beginning so that the model reads at most `window` tokens.
    """
    if context:
        count = len(context) - len(context.rstrip())
        before = context[: len(context) - count]
        whole = encoded(context + continuation, tokenizer, prefix)
        start = len(encoded(before, tokenizer, prefix))
        head, tail = whole[:start], whole[start:]
    else:
        assert prefix is not None
        head, tail = [prefix], tokenizer.encode(continuation, special=False)
        if tail[:1] == [prefix]:
            head, tail = tail[:1], tail[1:]
    return cut_window(head, tail, window)


def cut_window(head: Sequence[int], tail: Sequence[int], window: int) -> Window:
    """Return the window of the tokens `tail` after `head`, truncated at its beginning."""
    if len(tail) > window:
        raise UsageError(
            f"The continuation has {len(tail)} tokens, but the model reads {window} at once.",
            hint="Score it as a text.",
        )
    kept = (*head, *tail)[-(window + 1) :]
    return Window(kept, len(kept) - len(tail))


def text_windows(ids: Sequence[int], convention: Convention, prefix: int | None) -> Iterator[Window]:
    """Yield the windows of a text with these ids. `prefix`: the id of prefix_id."""
    if convention.name == "lm-eval":
        assert prefix is not None
        yield from _rolling(ids, convention.window, prefix)
    elif convention.name == "strided":
        yield from _strided(ids, convention.window, convention.stride)
    else:
        yield from _halves(ids, convention.window, prefix if convention.has_bos else None)


def _rolling(ids: Sequence[int], window: int, prefix: int) -> Iterator[Window]:
    if ids:
        first = ids[:window]
        yield Window((prefix, *first), 1)
    done = min(window, len(ids))
    while done < len(ids):
        end = min(len(ids), done + window)
        kept = ids[max(0, end - window - 1) : end]
        yield Window(tuple(kept), len(kept) - (end - done))
        done = end


def _strided(ids: Sequence[int], window: int, stride: int) -> Iterator[Window]:
    done = 0
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        first = max(1, len(range(begin, done)))
        if begin + first < end:
            yield Window(tuple(ids[begin:end]), first)
        done = end
        if end == len(ids):
            return


def _halves(ids: Sequence[int], window: int, bos: int | None) -> Iterator[Window]:
    if len(ids) < 2 * window:
        raise UsageError(
            f"The text has {len(ids)} tokens, but llama needs at least two windows of {window}.",
            hint="Give a longer text, or a smaller `window`.",
        )
    for begin in range(0, len(ids) - window + 1, window):
        own = tuple(ids[begin : begin + window])
        yield Window(own if bos is None else (bos, *own[1:]), window // 2 + 1)

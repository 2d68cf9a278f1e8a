"""Log-probabilities as OpenAI's API has them: a list of objects for chat, parallel lists for completions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gencli.core.events import Alternative, TokenLogprobs
from gencli.text.tokenizer import Tokenizer

__all__ = ["TokenNames", "chat_logprobs", "completion_logprobs", "finite"]

_NEVER = -9999.0  # minus infinity, which JSON has not; OpenAI writes the same


def finite(logprob: float) -> float:
    """Return the number as JSON can have it."""
    return logprob if math.isfinite(logprob) else _NEVER


@dataclass(frozen=True, slots=True)
class TokenNames:
    """The text and the bytes of a token as replies name it; `as_ids`: the text is "token_id:5"."""

    tokenizer: Tokenizer
    as_ids: bool = False

    def bytes(self, token_id: int) -> bytes:
        """Return the token's own bytes, maybe a part of a character; of a special token those of its name."""
        table = self.tokenizer.token_bytes
        own = table[token_id] if token_id < len(table) else b""
        return own or self._special(token_id).encode()

    def text(self, token_id: int) -> str:
        """Return the text of the token; halves of characters are U+FFFD."""
        if self.as_ids:
            return f"token_id:{token_id}"
        return self.bytes(token_id).decode(errors="replace")

    def _special(self, token_id: int) -> str:
        return self.tokenizer.decode([token_id], skip_special=False)


def chat_logprobs(entries: Sequence[TokenLogprobs], names: TokenNames) -> dict[str, Any]:
    """Return the object `logprobs` of a chat choice."""
    return {"content": [_entry(entry, names) for entry in entries], "refusal": None}


def _entry(entry: TokenLogprobs, names: TokenNames) -> dict[str, Any]:
    top = [_alternative(each, names) for each in entry.top]
    return {**_alternative(entry.chosen, names), "top_logprobs": top}


def _alternative(alternative: Alternative, names: TokenNames) -> dict[str, Any]:
    return {
        "token": names.text(alternative.id),
        "logprob": finite(alternative.logprob),
        "bytes": list(names.bytes(alternative.id)),
    }


def completion_logprobs(
    ids: Sequence[int],
    entries: Sequence[TokenLogprobs | None],
    names: TokenNames,
    *,
    offset: int = 0,
    length: Callable[[str], int] = len,
) -> dict[str, Any]:
    """Return the object `logprobs` of a completion: a list entry for each id, null where nothing is known.

    The token itself is always among its alternatives, with the same number. `offset`: characters before the
    first token.
    """
    texts = [names.text(token_id) for token_id in ids]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += length(text)
    return {
        "tokens": texts,
        "token_logprobs": [None if entry is None else finite(entry.chosen.logprob) for entry in entries],
        "top_logprobs": [None if entry is None else _top(entry, names) for entry in entries],
        "text_offset": offsets,
    }


def _top(entry: TokenLogprobs, names: TokenNames) -> dict[str, float]:
    """The alternatives by text; of two with the same text the likelier one, but always the token's own."""
    found: dict[str, float] = {}
    for each in entry.top:
        found.setdefault(names.text(each.id), finite(each.logprob))
    return {**found, names.text(entry.chosen.id): finite(entry.chosen.logprob)}

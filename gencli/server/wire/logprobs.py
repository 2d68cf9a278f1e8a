"""Log-probabilities as OpenAI's API has them: a list of objects for chat, parallel lists for completions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gencli.core.events import Alternative, TokenLogprobs
from gencli.text.tokenizer import Tokenizer

__all__ = [
    "LogprobStyle",
    "TokenNames",
    "chat_logprobs",
    "completion_logprobs",
    "finite",
    "prompt_logprobs",
    "token_entries",
]

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


@dataclass(frozen=True, slots=True)
class LogprobStyle:
    """Which numbers are shown: those of the model, or with `is_processed` those after all stages.

    `has_bans`: beside them stands what made a token impossible.
    """

    names: TokenNames
    is_processed: bool = False
    has_bans: bool = False

    def number(self, alternative: Alternative) -> float:
        """Return the log-probability of a token."""
        return finite(alternative.processed if self.is_processed else alternative.logprob)

    def best(self, entry: TokenLogprobs) -> Sequence[Alternative]:
        """Return the most likely tokens of a position."""
        return entry.processed_top if self.is_processed else entry.top


def chat_logprobs(entries: Sequence[TokenLogprobs], style: LogprobStyle) -> dict[str, Any]:
    """Return the object `logprobs` of a chat choice."""
    return {"content": token_entries(entries, style), "refusal": None}


def token_entries(entries: Sequence[TokenLogprobs], style: LogprobStyle) -> list[dict[str, Any]]:
    """Return an object for each token, with its alternatives."""
    return [
        {
            **_alternative(entry.chosen, style),
            "top_logprobs": [_alternative(each, style) for each in style.best(entry)],
        }
        for entry in entries
    ]


def _alternative(alternative: Alternative, style: LogprobStyle) -> dict[str, Any]:
    return {
        "token": style.names.text(alternative.id),
        "logprob": style.number(alternative),
        "bytes": list(style.names.bytes(alternative.id)),
        **({"banned_by": alternative.banned_by or None} if style.has_bans else {}),
    }


def completion_logprobs(
    ids: Sequence[int],
    entries: Sequence[TokenLogprobs | None],
    style: LogprobStyle,
    *,
    offset: int = 0,
) -> dict[str, Any]:
    """Return the object `logprobs` of a completion: a list entry for each id, null where nothing is known.

    The token itself is always among its alternatives, with the same number. `offset`: characters before the
    first token. `banned_by` has the impossible ones among the alternatives.
    """
    texts = [style.names.text(token_id) for token_id in ids]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    found = {
        "tokens": texts,
        "token_logprobs": [None if entry is None else style.number(entry.chosen) for entry in entries],
        "top_logprobs": [None if entry is None else _top(entry, style) for entry in entries],
        "text_offset": offsets,
    }
    if style.has_bans:
        found["banned_by"] = [None if entry is None else _bans(entry, style) for entry in entries]
    return found


def _top(entry: TokenLogprobs, style: LogprobStyle) -> dict[str, float]:
    """The alternatives by text; of two with the same text the likelier one, but always the token's own."""
    found: dict[str, float] = {}
    for each in style.best(entry):
        found.setdefault(style.names.text(each.id), style.number(each))
    return {**found, style.names.text(entry.chosen.id): style.number(entry.chosen)}


def _bans(entry: TokenLogprobs, style: LogprobStyle) -> dict[str, str]:
    shown = (*style.best(entry), entry.chosen)
    return {style.names.text(each.id): each.banned_by for each in shown if each.banned_by}


def prompt_logprobs(
    entries: Sequence[TokenLogprobs | None], names: TokenNames
) -> list[dict[str, dict[str, Any]] | None]:
    """Return vLLM's `prompt_logprobs`: for each position but the first its tokens by id."""
    return [None if entry is None else _by_id(entry, names) for entry in entries]


def _by_id(entry: TokenLogprobs, names: TokenNames) -> dict[str, dict[str, Any]]:
    ranked = [(entry.rank, entry.chosen), *enumerate(entry.top, start=1)]
    return {
        str(each.id): {
            "logprob": finite(each.logprob),
            "rank": rank,
            "decoded_token": names.text(each.id),
        }
        for rank, each in ranked
    }

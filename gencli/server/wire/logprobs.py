"""Log-probabilities in OpenAI's formats: a list of objects for chat, parallel lists for completions."""

from __future__ import annotations

import math
from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gencli.core.events import Alternative, TokenLogprobs
from gencli.text.tokenizer import Tokenizer

__all__ = [
    "LogprobStyle",
    "TextOffsets",
    "TokenNames",
    "chat_logprobs",
    "completion_logprobs",
    "finite",
    "prompt_logprobs",
    "token_entries",
]

_NEVER = -9999.0  # stands for -inf, which JSON lacks; OpenAI writes the same


def finite(logprob: float) -> float:
    """Return a finite number that JSON can represent."""
    return logprob if math.isfinite(logprob) else _NEVER


@dataclass(frozen=True, slots=True)
class TokenNames:
    """The text and the bytes of a token in replies; `as_ids`: the text is "token_id:5"."""

    tokenizer: Tokenizer
    as_ids: bool = False

    def bytes(self, token_id: int) -> bytes:
        """Return the token's bytes, perhaps part of a character; for a special token those of its name."""
        table = self.tokenizer.token_bytes
        own = table[token_id] if token_id < len(table) else b""
        return own or self._special(token_id).encode()

    def text(self, token_id: int) -> str:
        """Return the text of the token; partial characters become U+FFFD."""
        if self.as_ids:
            return f"token_id:{token_id}"
        return self.bytes(token_id).decode(errors="replace")

    def _special(self, token_id: int) -> str:
        return self.tokenizer.decode([token_id], skip_special=False)


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
        """Return the offsets of the next tokens."""
        found = []
        for token in ids:
            found.append(max(0, self._count))
            self._count += len(self._decoder.decode(self._of(token)))
        return found

    def _of(self, token: int) -> bytes:
        is_shown = token not in self._special and token < len(self._bytes)
        return self._bytes[token] if is_shown else b""


def _spaces(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


@dataclass(frozen=True, slots=True)
class LogprobStyle:
    """Which numbers are shown: those of the model, or with `is_processed` those after all stages.

    `has_bans`: the cause that masks a token is shown as well.
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
    offsets: TextOffsets,
) -> dict[str, Any]:
    """Return the object `logprobs` of a completion: lists with an entry for each id, null if unknown.

    The token itself is always among its alternatives, with the same number. `offsets`: of the tokens before.
    `banned_by` lists the masked alternatives.
    """
    texts = [style.names.text(token_id) for token_id in ids]
    found = {
        "tokens": texts,
        "token_logprobs": [None if entry is None else style.number(entry.chosen) for entry in entries],
        "top_logprobs": [None if entry is None else _top(entry, style) for entry in entries],
        "text_offset": offsets.after(ids),
    }
    if style.has_bans:
        found["banned_by"] = [None if entry is None else _bans(entry, style) for entry in entries]
    return found


def _top(entry: TokenLogprobs, style: LogprobStyle) -> dict[str, float]:
    """Return the alternatives by text; for equal texts the likelier one, but always the token's own."""
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
    """Return vLLM's `prompt_logprobs`: for each position its tokens by id; null for the first position."""
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

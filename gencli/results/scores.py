"""Log-probabilities of a prompt and its samples: collected from events, formatted as JSON and text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gencli.core.events import Alternative, Event, PromptScores, TokenLogprobs
from gencli.results.by_token import ByToken
from gencli.text.tokenizer import Tokenizer

__all__ = ["Scores", "entry_record", "piece", "score_rows"]

_Entries = tuple[TokenLogprobs | None, ...]


@dataclass(slots=True)
class Scores:
    """Log-probabilities of one request, from its events; `prompt` is None without prompt scores."""

    prompt: _Entries | None = None
    _samples: ByToken[TokenLogprobs] = field(default_factory=lambda: ByToken(lambda event: event.logprobs))

    def add(self, event: Event) -> None:
        """Add the log-probabilities of an event."""
        if isinstance(event, PromptScores):
            self.prompt = event.scores
        self._samples.add(event)

    def of(self, sample: int) -> tuple[TokenLogprobs, ...]:
        """Return the entries of a sample's tokens."""
        return self._samples.of(sample)


def entry_record(entry: TokenLogprobs | None, tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Return an entry as JSON. A log-probability of -inf is null."""
    if entry is None:
        return None
    return {
        **_alternative(entry.chosen, tokenizer),
        "rank": entry.rank,
        "processed_rank": entry.processed_rank,
        "top": [_alternative(one, tokenizer) for one in entry.top],
        "processed_top": [_alternative(one, tokenizer) for one in entry.processed_top],
    }


def _alternative(one: Alternative, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "id": one.id,
        "token": piece(one.id, tokenizer),
        "bytes": list(_bytes(one.id, tokenizer)),
        "logprob": _number(one.logprob),
        "processed": _number(one.processed),
        "banned_by": one.banned_by or None,
    }


def _number(value: float) -> float | None:
    """Return a log-probability rounded to the digits that do not depend on the rest of its batch."""
    return None if not math.isfinite(value) else float(f"{value:.6g}")


def _bytes(token: int, tokenizer: Tokenizer) -> bytes:
    return tokenizer.token_bytes[token] if token < tokenizer.vocab_size else b""


def piece(token: int, tokenizer: Tokenizer) -> str:
    """Return the text of a token; for a special token its name, for an id that the tokenizer lacks ""."""
    if token in tokenizer.special_ids:
        return tokenizer.decode([token], skip_special=False)
    return _bytes(token, tokenizer).decode(errors="replace")


def score_rows(entries: Sequence[TokenLogprobs | None], tokenizer: Tokenizer) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table of entries, header first: token, log-probabilities, ranks, top ids."""
    yield ("token", "logprob", "rank", "processed", "rank", "best under the model")
    for entry in entries:
        if entry is None:
            continue
        best = "  ".join(f"{piece(one.id, tokenizer)!r} {_shown(one)}" for one in entry.top)
        chosen, ranks = entry.chosen, (str(entry.rank), str(entry.processed_rank))
        processed = chosen.banned_by or f"{chosen.processed:.4f}"
        yield (
            repr(piece(chosen.id, tokenizer)), f"{chosen.logprob:.4f}", ranks[0], processed, ranks[1], best
        )  # fmt: skip


def _shown(one: Alternative) -> str:
    return f"{one.logprob:.4f}" + (f" ({one.banned_by})" if one.banned_by else "")

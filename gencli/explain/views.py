"""The explanations of one request's tokens: collected from its events, and as records."""

from __future__ import annotations

from collections.abc import Iterable

from gencli.explain.record import Record, token_record
from gencli.results.run_results import ByToken
from gencli.text.tokenizer import Tokenizer
from processors.explain.view import RowView

__all__ = ["Views", "records", "views"]

Views = ByToken[RowView]


def views() -> Views:
    """Return a collector of the explanations of one request's tokens."""
    return ByToken(lambda event: event.views)


def records(
    found: Iterable[RowView], tokenizer: Tokenizer, *, run: str, sample: int, first: int = 0
) -> list[Record]:
    """Return the records of consecutive tokens; the first one has position `first`."""
    return [
        token_record(view, tokenizer, run=run, sample=sample, position=position)
        for position, view in enumerate(found, start=first)
    ]

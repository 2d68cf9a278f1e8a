"""The texts that a search or a choice among samples had to choose from, as JSON shows them."""

from __future__ import annotations

from typing import Any

from gencli.cli.results import Row

__all__ = ["candidates"]


def candidates(row: Row) -> list[dict[str, Any]] | None:
    """All of a prompt's candidates, the best first; None where nothing was chosen among texts."""
    found = next((finish.candidates for finish in row.finishes), ())
    return [
        {
            "text": one.text,
            "score": one.score,
            "logprob": one.logprob,
            "completion_tokens": one.completion_tokens,
            "finish_reason": one.reason,
        }
        for one in found
    ] or None

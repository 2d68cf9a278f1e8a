"""A search, or a choice among samples, as JSON shows it: how it was made, and what from."""

from __future__ import annotations

from typing import Any

from gencli.beams.score import rounded
from gencli.config.job import Job
from gencli.results.results import Row

__all__ = ["candidates", "search"]


def search(job: Job) -> dict[str, Any] | None:
    """The values that a text is chosen by; None where it is not chosen among texts."""
    if job.beams is not None:
        return {
            "beams": job.beams.width,
            "length_penalty": job.beams.length_penalty,
            "early_stopping": job.beams.early_stopping,
        }
    return {"best_of": job.best_of} if job.best_of else None


def candidates(row: Row) -> list[dict[str, Any]] | None:
    """All of a prompt's candidates, the best first; None where nothing was chosen among texts."""
    found = next((finish.candidates for finish in row.finishes), ())
    return [
        {
            "text": one.text,
            "score": rounded(one.score),
            "logprob": rounded(one.logprob),
            "completion_tokens": one.completion_tokens,
            "finish_reason": one.reason,
        }
        for one in found
    ] or None

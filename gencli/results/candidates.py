"""JSON records of beam search and best-of-n: their options and candidates."""

from __future__ import annotations

from typing import Any

from gencli.config.job import Job
from gencli.engine.beams.results import rounded
from gencli.results.results import Row

__all__ = ["candidates", "search"]


def search(job: Job) -> dict[str, Any] | None:
    """Return the options of beam search or best-of-n; None without either."""
    if job.beams is not None:
        return {
            "beams": job.beams.width,
            "length_penalty": job.beams.length_penalty,
            "early_stopping": job.beams.early_stopping,
        }
    return {"best_of": job.best_of} if job.best_of else None


def candidates(row: Row) -> list[dict[str, Any]] | None:
    """Return a prompt's candidates, best first; None without beam search or best-of-n."""
    ranked = next((finish.candidates for finish in row.finishes), ())
    return [
        {
            "text": one.text,
            "score": rounded(one.score),
            "logprob": rounded(one.logprob),
            "completion_tokens": one.completion_tokens,
            "finish_reason": one.reason,
        }
        for one in ranked
    ] or None

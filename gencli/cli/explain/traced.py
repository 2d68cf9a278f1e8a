"""The writer of a run's trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from gencli.config.recipe import Recipe
from gencli.config.requests import encode_prompt
from gencli.config.settings import Settings
from gencli.explain.head import text_head
from gencli.explain.trace_file import Head, TraceWriter
from gencli.results.run_record import RunInfo
from gencli.results.run_results import Results

__all__ = ["head_of", "trace_to"]


def trace_to(write: Callable[[str], None], settings: Settings) -> Callable[[Results, RunInfo], TraceWriter]:
    """Return a factory of a trace's writer: `write` receives the lines, `settings` are the run's."""

    def make(results: Results, info: RunInfo) -> TraceWriter:
        assert info.tokenizer is not None
        structure, recipe = info.job.structure, asdict(Recipe.of(settings, info.job))
        plain = head_of(results, info)

        def head(request: str, sample: int) -> Mapping[str, Any]:
            return {**plain(request, sample), **recipe}

        waits = structure is not None and structure.retries > 0
        return TraceWriter(write, head, info.tokenizer, waits=waits)

    return make


def head_of(results: Results, info: RunInfo) -> Head:
    """Return a function from request and sample to the head of a traced text."""
    tokenizer = info.tokenizer
    assert tokenizer is not None

    def head(request: str, sample: int) -> Mapping[str, Any]:
        prompt = results.row(request).prompt
        ids = encode_prompt(info.job, prompt, tokenizer)
        return {**text_head(info, prompt, ids), "texts": len(results.rows) * info.job.n}

    return head

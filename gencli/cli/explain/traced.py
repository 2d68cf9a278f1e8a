"""The writer of a run's trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from gencli.cli.terminal.render import Sink
from gencli.config.recipe import Recipe
from gencli.config.settings import Settings
from gencli.explain.trace_file import TraceWriter
from gencli.results.record import RunInfo
from gencli.results.results import Results

__all__ = ["trace_to"]


def trace_to(sink: Sink, settings: Settings) -> Callable[[Results, RunInfo], TraceWriter]:
    """Return a factory of the writer of a trace to the sink. `settings` are those of the run."""

    def make(results: Results, info: RunInfo) -> TraceWriter:
        structure, tokenizer = info.job.structure, info.tokenizer
        assert tokenizer is not None
        recipe = asdict(Recipe.of(settings, info.job))

        def head(request: str, sample: int) -> Mapping[str, Any]:
            return {
                "model": info.model,
                "prompt": results.row(request).prompt,
                "chain": info.chain.to_list(),
                "draw": info.job.method,
                "seed": info.job.seed,
                **recipe,
            }

        waits = structure is not None and structure.retries > 0
        return TraceWriter(sink.write, head, tokenizer, waits=waits)

    return make

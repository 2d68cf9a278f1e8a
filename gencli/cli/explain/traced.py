"""The writer of a run's trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gencli.config.job import encode_prompt
from gencli.explain.trace_file import Head, TraceWriter
from gencli.results.record import RunInfo
from gencli.results.results import Results

__all__ = ["head_of", "trace_to"]


def trace_to(write: Callable[[str], None]) -> Callable[[Results, RunInfo], TraceWriter]:
    """Return a factory of the writer of a trace, whose lines `write` gets."""

    def make(results: Results, info: RunInfo) -> TraceWriter:
        assert info.tokenizer is not None
        structure = info.job.structure
        waits = structure is not None and structure.retries > 0
        return TraceWriter(write, head_of(results, info), info.tokenizer, waits=waits)

    return make


def head_of(results: Results, info: RunInfo) -> Head:
    """Return what a trace says of a sample before its tokens, by request and sample."""
    tokenizer = info.tokenizer
    assert tokenizer is not None

    def head(request: str, sample: int) -> Mapping[str, Any]:
        prompt = results.row(request).prompt
        return {
            "model": info.model,
            "prompt": prompt,
            "chain": info.chain.to_list(),
            "draw": info.job.method,
            "seed": info.job.seed,
            "prompt_ids": encode_prompt(info.job, prompt, tokenizer),
            "eos_ids": info.eos_ids,
            "stop_ids": info.job.stops.ids,
            "max_tokens": info.job.limits.max_tokens,
        }

    return head

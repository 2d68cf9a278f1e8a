"""Head of a traced text: the fields that a trace has before the tokens."""

from __future__ import annotations

from typing import Any

from gencli.results.run_record import RunInfo

__all__ = ["text_head"]


def text_head(info: RunInfo, prompt: str, prompt_ids: tuple[int, ...]) -> dict[str, Any]:
    """Return model, prompt, chain, draw and seed, and other data that a chain needs to run on kept logits."""
    return {
        "model": info.model,
        "prompt": prompt,
        "chain": info.chain.to_list(),
        "draw": info.job.method,
        "seed": info.job.seed,
        "prompt_ids": prompt_ids,
        "eos_ids": info.eos_ids,
        "stop_ids": info.job.stops.ids,
        "max_tokens": info.job.limits.max_tokens,
    }

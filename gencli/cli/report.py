"""Results as text: the JSON record, the summary, the table of the chain. Nothing here prints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gencli.cli.results import Results, Row, tokens_per_second
from gencli.events import Error, Finish
from gencli.job import Job
from gencli.models.base import ModelSpec
from processors.chain import Chain

__all__ = ["RunInfo", "errors", "record", "stats", "summary"]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What the records of a run have in common."""

    model: str
    chain: Chain
    job: Job


def record(row: Row, info: RunInfo) -> dict[str, Any]:
    """A prompt's result as docs/run-output.schema.json describes it.

    With -n above 1 `text` becomes `texts`, and what belongs to a sample becomes a list beside it.
    """
    samples = [_sample(outcome) for outcome in row.ended]
    of_sample: dict[str, Any] = {key: [sample[key] for sample in samples] for key in samples[0]}
    texts = {"texts": of_sample.pop("text")}
    if info.job.n == 1:
        of_sample = {key: values[0] for key, values in of_sample.items()}
        texts = {"text": texts["texts"][0]}
    return {
        "id": row.id,
        "prompt": row.prompt,
        **texts,
        **of_sample,
        "prompt_tokens": max((finish.prompt_tokens for finish in row.finishes), default=None),
        "seed": info.job.seed,
        "model": info.model,
        "timings": _timings(row.finishes),
        "sampler": "greedy" if info.job.is_greedy else info.job.draw,
        "chain": info.chain.to_list(),
        "origins": {f"{a.stage}.{a.field}": f"{a.origin} {a.said}" for a in info.job.assembly.values},
    }


def _sample(outcome: Finish | Error) -> dict[str, Any]:
    if isinstance(outcome, Error):
        nothing = {"matched": None, "offset": None, "completion_tokens": None}
        error = {"type": outcome.type, "message": outcome.message}
        return {"text": outcome.text, "finish_reason": "error", **nothing, "error": error}
    return {
        "text": outcome.text,
        "finish_reason": outcome.reason,
        "matched": outcome.matched,
        "offset": outcome.offset,
        "completion_tokens": outcome.completion_tokens,
        "error": None,
    }


def _timings(finishes: list[Finish]) -> dict[str, float | None] | None:
    if not finishes:
        return None
    times = [finish.timings for finish in finishes]
    speed = tokens_per_second(finishes)
    return {
        "prefill": round(max(t.prefill for t in times), 6),
        "decode": round(max(t.decode for t in times), 6),
        "first_token": round(min(t.first_token for t in times), 6),
        "tokens_per_second": None if speed is None else round(speed, 3),
    }


def summary(results: Results, info: RunInfo) -> Iterator[str]:
    """The lines that follow a run on stderr."""
    finishes = results.finishes
    if finishes:
        parts = [_count(sum(finish.completion_tokens for finish in finishes), "token")]
        speed = tokens_per_second(finishes)
        parts += [f"{speed:.1f} tok/s"] if speed is not None else []
        parts += [_reasons(results), f"seed {info.job.seed}"]
        prompts = f"{len(results.rows)} prompts: " if len(results.rows) > 1 else ""
        yield prompts + ", ".join(parts)
    limits = {finish.matched for finish in finishes if finish.reason == "length"}
    if "max_tokens" in limits:
        yield f"Cut at --max-tokens {info.job.limits.max_tokens}; raise it for more."
    if "max_time" in limits:
        yield f"Cut at --max-time {info.job.limits.max_time:g} s; raise it for more."
    if "context" in limits:
        yield "Cut at the end of the model's context; a shorter prompt leaves more room."


def errors(results: Results) -> Iterator[str]:
    """A line for each sample that failed."""
    for error in results.errors:
        yield f"Error: {_which(error, results)}{error.message}"


def _which(error: Error, results: Results) -> str:
    rows = f"prompt {error.request}" if len(results.rows) > 1 else ""
    samples = f"sample {error.sample + 1}" if len(results.row(error.request).outcomes) > 1 else ""
    which = ", ".join(part for part in (rows, samples) if part)
    return f"{which}: " if which else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _reasons(results: Results) -> str:
    outcomes = [outcome for row in results.rows for outcome in row.ended]
    if len(outcomes) > 1:
        reasons = Counter("error" if isinstance(one, Error) else one.reason for one in outcomes)
        return ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    finish = results.finishes[0]
    is_said = finish.reason == "stop" and finish.matched is not None
    return f"stop at {json.dumps(finish.matched, ensure_ascii=False)}" if is_said else finish.reason


def stats(results: Results, spec: ModelSpec, *, load_seconds: float, threads: int) -> Iterator[str]:
    """What --stats adds."""
    dtype = str(spec.dtype).removeprefix("torch.")
    reason = f" ({spec.dtype_reason})" if spec.dtype_reason else ""
    yield f"model: {spec.name}, context {spec.context}, vocabulary {spec.vocab_size}"
    yield f"device: {spec.device}, {_count(threads, 'thread')}, dtype: {dtype}{reason}"
    yield f"load: {load_seconds:.2f} s"
    timings = _timings(results.finishes)
    if timings is not None:
        speed = timings["tokens_per_second"]
        yield f"prefill: {timings['prefill']:.3f} s, first token after {timings['first_token']:.3f} s"
        yield f"decode: {timings['decode']:.3f} s" + (f", {speed:.1f} tok/s" if speed is not None else "")

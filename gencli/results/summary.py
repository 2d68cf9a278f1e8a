"""Lines about a run for a person: totals, errors, notices, and details of the model and the times."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

from gencli.core.events import Error, Finish
from gencli.models.device import kv_name
from gencli.models.model_runner import ModelSpec
from gencli.results.draft_report import draft_lines
from gencli.results.record import RunInfo, timings
from gencli.results.results import Results, failure, num_samples, tokens_per_second
from processors.chain import Chain

__all__ = ["errors", "stats", "summary", "thinking"]


def summary(results: Results, info: RunInfo) -> Iterator[str]:
    """Yield the totals of a run: tokens, speed, finish reasons and seed; limits that cut it; notices."""
    finishes = results.finishes
    if finishes:
        parts = [_count(sum(finish.completion_tokens for finish in finishes), "token")]
        speed = tokens_per_second(finishes)
        parts += [f"{speed:.1f} tok/s"] if speed is not None else []
        parts += [_reasons(results), f"seed {info.job.seed}"]
        prompts = f"{len(results.rows)} prompts: " if len(results.rows) > 1 else ""
        yield prompts + ", ".join(parts)
    # The error of a cut sample without a result already names the limit.
    limits = {finish.matched for finish in finishes if finish.reason == "length" and not failure(finish)}
    if "max_tokens" in limits and info.job.limits.max_tokens:
        yield f"Cut at `max_tokens` = {info.job.limits.max_tokens}; raise it for more."
    if "max_time" in limits:
        yield f"Cut at `max_time` = {info.job.limits.max_time:g} s; raise it for more."
    if "context" in limits:
        yield "Cut at the end of the model's context; a shorter prompt leaves more room."
    yield from _about_samples(results)
    yield from _about_structure(results, info)
    if info.drafter:
        yield from draft_lines(finishes, info.drafter)


def thinking(results: Results) -> Iterator[str]:
    """Yield the reasoning text before each result."""
    for finish in results.finishes:
        if finish.verdict and finish.verdict.thinking:
            which = _which(finish.request, finish.sample, results)
            yield f"[thinking] {which}{finish.verdict.thinking.strip()}"


def errors(results: Results) -> Iterator[str]:
    """Yield a message for each sample without a result."""
    for failed in results.failures:
        yield f"{_which(failed.request, failed.sample, results)}{failed.message}"


def stats(
    results: Results, info: RunInfo, spec: ModelSpec, *, load_seconds: float, threads: int
) -> Iterator[str]:
    """Yield model, device, number format, grammar back end, and times in seconds."""
    dtype = str(spec.dtype).removeprefix("torch.")
    reason = f" ({spec.dtype_reason})" if spec.dtype_reason else ""
    yield f"model: {spec.name}, context {spec.context}, vocabulary {spec.vocab_size}"
    yield f"device: {spec.device}, {_count(threads, 'thread')}, dtype: {dtype}{reason}"
    if spec.backend:
        yield f"backend: {spec.backend}"
    if spec.quantization:
        yield f"weights: {spec.quantization}"
    if spec.kernels:
        bits = "do not depend" if spec.has_invariant_rows else "may depend"
        yield f"kernels: {' and '.join(spec.kernels)}; the bits of a text {bits} on its batch"
    if spec.kv_dtype is not None and spec.kv_dtype != spec.dtype:
        yield f"keys and values: {kv_name(spec.kv_dtype)}"
    if spec.graphs is not None and spec.graphs.records:
        count, steps = spec.graphs.num_recorded, spec.graphs.num_replayed
        yield f"graphs: {count} recorded, replayed in {_count(steps, 'step')}"
    elif spec.device.type == "cuda":
        yield f"graphs: none, as {spec.no_graphs}"
    yield f"load: {load_seconds:.2f} s"
    if info.compiled is not None:
        backend = info.compiled.variant.constraint.backend
        yield f"grammar: {backend}, compile: {info.compiled.seconds:.3f} s"
        if info.job.structure is not None and info.job.structure.plan.reason:
            yield f"grammar: {info.job.structure.plan.reason}"
        yield from (f"{backend} warns: {warning}" for warning in info.compiled.warnings)
    times = timings(results.finishes)
    if times is not None:
        speed = times["tokens_per_second"]
        yield f"prefill: {times['prefill']:.3f} s, first token after {times['first_token']:.3f} s"
        yield f"decode: {times['decode']:.3f} s" + (f", {speed:.1f} tok/s" if speed is not None else "")


def _about_samples(results: Results) -> Iterator[str]:
    """Yield a notice if all samples of a prompt have the same text."""
    counts = [(row.finishes, sum(map(num_samples, row.finishes))) for row in results.rows]
    equal = [count for ends, count in counts if count > 1 and len({end.text for end in ends}) == 1]
    if equal:
        of = "" if len(results.rows) == 1 else f" for {len(equal)} of {len(results.rows)} prompts"
        yield f"Notice: All {equal[0]} samples are the same text{of}."


def _about_structure(results: Results, info: RunInfo) -> Iterator[str]:
    """Yield the number of attempts of each valid result, and stages that a grammar overrode."""
    for finish in results.finishes:
        verdict = finish.verdict
        if verdict and verdict.is_valid and verdict.attempts > 1:
            which = _which(finish.request, finish.sample, results)
            yield f"{which}Valid after {verdict.attempts} attempts."
    longer = Counter(stage for finish in results.finishes if (stage := _asks_for_more(finish, info.chain)))
    for stage, count in longer.items():
        total = sum(map(num_samples, results.finishes))
        texts = "it" if total == 1 else f"{count} of {total} texts"
        yield f"Notice: The grammar allows nothing more, so {stage} did not make {texts} longer."


def _asks_for_more(finish: Finish, chain: Chain) -> str:
    """Return the stage that requires a longer text than the grammar allows; "" if there is none."""
    if finish.reason != "grammar":
        return ""
    at_least, ignore = (cast(Any, chain.get(name)) for name in ("min_tokens", "ignore_eos"))
    if at_least and finish.completion_tokens < at_least.count:
        return "min_tokens"
    return "ignore_eos" if ignore and ignore.enabled else ""


def _which(request: str, sample: int, results: Results) -> str:
    """Return the beginning of a sentence that names the prompt and sample; "" if there is only one."""
    rows = f"prompt {request}" if len(results.rows) > 1 else ""
    samples = f"sample {sample + 1}" if len(results.row(request).outcomes) > 1 else ""
    which = ", ".join(part for part in (rows, samples) if part)
    return f"{which}: " if which else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _reasons(results: Results) -> str:
    outcomes = [outcome for row in results.rows for outcome in row.ended]
    if sum(map(num_samples, outcomes)) > 1:
        reasons = Counter[str]()
        for one in outcomes:
            reasons["error" if isinstance(one, Error) else one.reason] += num_samples(one)
        return ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    finish = results.finishes[0]
    is_said = finish.reason == "stop" and finish.matched is not None
    return f"stop at {json.dumps(finish.matched, ensure_ascii=False)}" if is_said else finish.reason

"""A finished run as a JSON record of each prompt, in the format of docs/run-output.schema.json, and as
lines for a person.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, cast

from gencli.config.job import Job
from gencli.config.option_names import with_flags
from gencli.core.events import Error, Finish, TokenLogprobs
from gencli.core.request import NO_DRAFTER
from gencli.engine.best_of import rounded
from gencli.helpers import counted
from gencli.models.device import kv_name
from gencli.models.files.checkpoint import ModelIdentity
from gencli.models.model_runner import ModelSpec
from gencli.results.run_results import (
    PromptRow,
    Results,
    draft_lines,
    draft_record,
    entry_record,
    failure,
    num_samples,
    tokens_per_second,
)
from gencli.structured.output_spec import Compiled
from gencli.text.tokenizer import Tokenizer
from processors.chain import Chain


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Values shared by all records of a run. `chain` is the chain that the engine runs."""

    model: str
    chain: Chain
    job: Job
    compiled: Compiled | None = None
    identity: ModelIdentity | None = None
    tokenizer: Tokenizer | None = None  # needed for log-probabilities
    eos_ids: tuple[int, ...] = ()  # needed for traces

    @property
    def drafter(self) -> str:
        """The name of the drafter; "" without one."""
        name = self.job.drafting.drafter
        return "" if name == NO_DRAFTER else name


def record(row: PromptRow, info: RunInfo) -> dict[str, Any]:
    """Return the record of a prompt: of several samples `texts`, and a list for each value of a sample."""
    outcomes = [(sample, outcome) for sample, outcome in enumerate(row.outcomes) if outcome]
    samples = [(_sample(row, sample, info), num_samples(outcome)) for sample, outcome in outcomes]
    of_sample: dict[str, Any] = {
        key: [value for sample, count in samples for value in repeat(sample[key], count)]
        for key in samples[0][0]
    }
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
        **({"prompt_token_ids": list(row.prompt_ids) or None} if info.job.has_token_ids else {}),
        **_logprobs(row.scores.prompt or (), info.job.prompt_logprobs, "prompt_logprobs", info),
        "seed": info.job.seed,
        "model": info.model,
        "model_revision": info.identity and info.identity.revision,
        "weights_sha256": info.identity and info.identity.sha256,
        "timings": timings(row.finishes),
        "sampler": info.job.method,
        "search": _search(info.job),
        "candidates": _candidates(row),
        **_grammar(info),
        "origins": {f"{a.stage}.{a.field}": with_flags(a.where) for a in info.job.assembly.values},
    }


def timings(finishes: Sequence[Finish]) -> dict[str, float | None] | None:
    """Return times in seconds and speed of samples submitted together; None without samples."""
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


def _sample(row: PromptRow, sample: int, info: RunInfo) -> dict[str, Any]:
    outcome = row.outcomes[sample]
    finish = outcome if isinstance(outcome, Finish) else None
    verdict, failed = finish and finish.verdict, failure(outcome) if outcome else None
    return {
        "text": row.shown(sample),
        "finish_reason": finish.reason if finish else "error",
        "matched": finish and finish.matched,
        "offset": finish and finish.offset,
        "completion_tokens": finish and finish.completion_tokens,
        "score": rounded(finish.score) if finish and finish.score is not None else None,
        "valid": verdict and verdict.is_valid,
        "parsed": verdict.value if verdict and verdict.is_valid else None,
        "thinking": verdict and verdict.thinking,
        "attempts": verdict.attempts if verdict else 1,
        "error": {"type": failed.type, "message": failed.message} if failed else None,
        "speculation": draft_record(finish, info.drafter) if info.drafter else None,
        **({"token_ids": list(row.ids.of(sample))} if info.job.has_token_ids else {}),
        **_logprobs(row.scores.of(sample), info.job.logprobs, "logprobs", info),
    }


def _logprobs(
    entries: Sequence[TokenLogprobs | None], count: int | None, key: str, info: RunInfo
) -> dict[str, Any]:
    """Return {key: entries as JSON}; {} without a requested `count`."""
    if count is None:
        return {}
    assert info.tokenizer is not None
    return {key: [entry_record(entry, info.tokenizer) for entry in entries]}


def _search(job: Job) -> dict[str, Any] | None:
    if (beams := job.beams) is not None:
        penalty, stopping = beams.length_penalty, beams.early_stopping
        return {"beams": beams.width, "length_penalty": penalty, "early_stopping": stopping}
    if job.contrastive is not None:
        return {"contrastive_alpha": job.contrastive.alpha, "contrastive_k": job.contrastive.k}
    return {"best_of": job.best_of} if job.best_of else None


def _candidates(row: PromptRow) -> list[dict[str, Any]] | None:
    """Return a prompt's candidates, best first; None without beam search or best-of-n."""
    ranked = next((finish.candidates for finish in row.finishes), ())
    return [
        {
            "text": candidate.text,
            "score": rounded(candidate.score),
            "logprob": rounded(candidate.logprob),
            "completion_tokens": candidate.completion_tokens,
            "finish_reason": candidate.reason,
        }
        for candidate in ranked
    ] or None


def _grammar(info: RunInfo) -> dict[str, Any]:
    """Return `grammar` and `chain`, without the text of a grammar set by an option, which may be long."""
    structure, stages, grammar = info.job.structure, info.chain.to_list(), None
    if structure is not None:
        for stage in stages:
            stage.get("grammar", {}).pop("text", None)
        if info.compiled is not None:
            variant = info.compiled.variant
            grammar = {
                "kind": structure.kind,
                "backend": variant.constraint.backend,
                "exact": variant.audit.is_exact,
                "compile_seconds": round(info.compiled.seconds, 6),
            }
    return {"grammar": grammar, "chain": stages}


def summary(results: Results, info: RunInfo) -> Iterator[str]:
    """Yield the totals of a run: tokens, speed, finish reasons and seed; limits that cut it; notices."""
    finishes = results.finishes
    if finishes:
        parts = [counted(sum(finish.completion_tokens for finish in finishes), "token")]
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
    counts = [(row.finishes, sum(map(num_samples, row.finishes))) for row in results.rows]
    if equal := [count for ends, count in counts if count > 1 and len({end.text for end in ends}) == 1]:
        of = "" if len(results.rows) == 1 else f" for {len(equal)} of {len(results.rows)} prompts"
        yield f"Notice: All {equal[0]} samples are the same text{of}."
    for finish in finishes:
        verdict = finish.verdict
        if verdict and verdict.is_valid and verdict.attempts > 1:
            which = _which(finish.request, finish.sample, results)
            yield f"{which}Valid after {verdict.attempts} attempts."
    longer = Counter(stage for finish in finishes if (stage := _asks_for_more(finish, info.chain)))
    for stage, count in longer.items():
        total = sum(map(num_samples, finishes))
        texts = "it" if total == 1 else f"{count} of {total} texts"
        yield f"Notice: The grammar allows nothing more, so {stage} did not make {texts} longer."
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
    yield f"device: {spec.device}, {counted(threads, 'thread')}, dtype: {dtype}{reason}"
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
        yield f"graphs: {count} recorded, replayed in {counted(steps, 'step')}"
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


def _asks_for_more(finish: Finish, chain: Chain) -> str:
    """Return the stage that requires a longer text than the grammar allows; "" if there is none."""
    if finish.reason != "grammar":
        return ""
    at_least, ignore = (cast(Any, chain.get(name)) for name in ("min_tokens", "ignore_eos"))
    if at_least and finish.completion_tokens < at_least.count:
        return "min_tokens"
    return "ignore_eos" if ignore and ignore.enabled else ""


def _which(request: str, sample: int, results: Results) -> str:
    # The beginning of a sentence that names the prompt and the sample, where there are several.
    rows = f"prompt {request}" if len(results.rows) > 1 else ""
    samples = f"sample {sample + 1}" if len(results.row(request).outcomes) > 1 else ""
    which = ", ".join(part for part in (rows, samples) if part)
    return f"{which}: " if which else ""


def _reasons(results: Results) -> str:
    outcomes = [outcome for row in results.rows for outcome in row.ended]
    if sum(map(num_samples, outcomes)) > 1:
        reasons = Counter[str]()
        for outcome in outcomes:
            reasons["error" if isinstance(outcome, Error) else outcome.reason] += num_samples(outcome)
        return ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    finish = results.finishes[0]
    if finish.reason == "stop" and finish.matched is not None:
        return f"stop at {json.dumps(finish.matched, ensure_ascii=False)}"
    return finish.reason

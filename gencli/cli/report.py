"""Results as text: the JSON record, the summary, the table of the chain. Nothing here prints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from gencli.cli.flags import with_flags
from gencli.config.job import Job
from gencli.config.options.drafts import NO_DRAFTER
from gencli.core.events import Error, Finish
from gencli.engine.beams.results import rounded
from gencli.models.base import ModelSpec
from gencli.models.files.identity import ModelIdentity
from gencli.results.candidates import candidates, search
from gencli.results.draft_report import draft_lines, draft_record
from gencli.results.results import Results, Row, failure, tokens_per_second
from gencli.runtime.grammars import Compiled
from processors.chain import Chain

__all__ = ["RunInfo", "errors", "record", "stats", "summary", "thinking"]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What the records of a run have in common."""

    model: str
    chain: Chain
    job: Job
    compiled: Compiled | None = None
    identity: ModelIdentity | None = None

    @property
    def drafter(self) -> str:
        """The name of what was to draft; "" for nothing."""
        name = self.job.drafting.drafter
        return "" if name == NO_DRAFTER else name


def record(row: Row, info: RunInfo) -> dict[str, Any]:
    """A prompt's result as docs/run-output.schema.json describes it.

    With -n above 1 `text` becomes `texts`, and what belongs to a sample becomes a list beside it.
    """
    samples = [_sample(row, sample, info) for sample in range(len(row.outcomes)) if row.outcomes[sample]]
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
        "model_revision": info.identity and info.identity.revision,
        "weights_sha256": info.identity and info.identity.sha256,
        "timings": _timings(row.finishes),
        "sampler": info.job.method,
        "search": search(info.job),
        "candidates": candidates(row),
        "grammar": _grammar(info),
        "chain": _stages(info),
        "origins": {
            f"{a.stage}.{a.field}": with_flags(f"{a.origin} {a.said}") for a in info.job.assembly.values
        },
    }


def _sample(row: Row, sample: int, info: RunInfo) -> dict[str, Any]:
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
    }


def _grammar(info: RunInfo) -> dict[str, Any] | None:
    if info.compiled is None or info.job.structure is None:
        return None
    variant = info.compiled.variant
    return {
        "kind": info.job.structure.kind,
        "backend": variant.constraint.backend,
        "exact": variant.audit.is_exact,
        "compile_seconds": round(info.compiled.seconds, 6),
    }


def _stages(info: RunInfo) -> list[dict[str, dict[str, Any]]]:
    """The chain; a grammar that an option gave is named by that option, for its text may be long."""
    stages = info.chain.to_list()
    if info.job.structure is not None:
        for stage in stages:
            stage.get("grammar", {}).pop("text", None)
    return stages


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
    # What has no result because it was cut has its own line.
    limits = {finish.matched for finish in finishes if finish.reason == "length" and not failure(finish)}
    if "max_tokens" in limits:
        yield f"Cut at --max-tokens {info.job.limits.max_tokens}; raise it for more."
    if "max_time" in limits:
        yield f"Cut at --max-time {info.job.limits.max_time:g} s; raise it for more."
    if "context" in limits:
        yield "Cut at the end of the model's context; a shorter prompt leaves more room."
    yield from _about_samples(results)
    yield from _about_structure(results, info)
    if info.drafter:
        yield from map(with_flags, draft_lines(finishes, info.drafter))


def _about_samples(results: Results) -> Iterator[str]:
    """Samples that were asked for to differ, and do not."""
    several = [row for row in results.rows if len(row.finishes) > 1]
    equal = [row for row in several if len({finish.text for finish in row.finishes}) == 1]
    if equal:
        of = "" if len(results.rows) == 1 else f" for {len(equal)} of {len(results.rows)} prompts"
        yield f"Notice: All {len(equal[0].finishes)} samples are the same text{of}."


def _about_structure(results: Results, info: RunInfo) -> Iterator[str]:
    """What a grammar did to other options, and how many draws a result took."""
    for finish in results.finishes:
        which = _which(finish.request, finish.sample, results)
        verdict = finish.verdict
        if verdict and verdict.is_valid and verdict.attempts > 1:
            yield f"{which}Valid after {verdict.attempts} attempts."
    longer = Counter(stage for finish in results.finishes if (stage := _asks_for_more(finish, info.chain)))
    for stage, count in longer.items():
        texts = "it" if len(results.finishes) == 1 else f"{count} of {len(results.finishes)} texts"
        yield f"Notice: The grammar allows nothing more, so {stage} did not make {texts} longer."


def _asks_for_more(finish: Finish, chain: Chain) -> str:
    """The stage that wanted a longer text than the grammar has."""
    if finish.reason != "grammar":
        return ""
    at_least, ignore = (cast(Any, chain.get(name)) for name in ("min_tokens", "ignore_eos"))
    if at_least and finish.completion_tokens < at_least.count:
        return "min_tokens"
    return "ignore_eos" if ignore and ignore.enabled else ""


def thinking(results: Results) -> Iterator[str]:
    """What stood before the results."""
    for finish in results.finishes:
        if finish.verdict and finish.verdict.thinking:
            which = _which(finish.request, finish.sample, results)
            yield f"[thinking] {which}{finish.verdict.thinking.strip()}"


def errors(results: Results) -> Iterator[str]:
    """A message for each sample without a result."""
    for failed in results.failures:
        yield f"{_which(failed.request, failed.sample, results)}{failed.message}"


def _which(request: str, sample: int, results: Results) -> str:
    """Which of several prompts and samples, as the beginning of a sentence."""
    rows = f"prompt {request}" if len(results.rows) > 1 else ""
    samples = f"sample {sample + 1}" if len(results.row(request).outcomes) > 1 else ""
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


def stats(
    results: Results, info: RunInfo, spec: ModelSpec, *, load_seconds: float, threads: int
) -> Iterator[str]:
    """What --stats adds."""
    dtype = str(spec.dtype).removeprefix("torch.")
    reason = f" ({spec.dtype_reason})" if spec.dtype_reason else ""
    yield f"model: {spec.name}, context {spec.context}, vocabulary {spec.vocab_size}"
    yield f"device: {spec.device}, {_count(threads, 'thread')}, dtype: {dtype}{reason}"
    yield f"load: {load_seconds:.2f} s"
    if info.compiled is not None:
        backend = info.compiled.variant.constraint.backend
        yield f"grammar: {backend}, compile: {info.compiled.seconds:.3f} s"
        if info.job.structure is not None and info.job.structure.plan.reason:
            yield with_flags(f"grammar: {info.job.structure.plan.reason}")
        yield from (f"{backend} warns: {warning}" for warning in info.compiled.warnings)
    timings = _timings(results.finishes)
    if timings is not None:
        speed = timings["tokens_per_second"]
        yield f"prefill: {timings['prefill']:.3f} s, first token after {timings['first_token']:.3f} s"
        yield f"decode: {timings['decode']:.3f} s" + (f", {speed:.1f} tok/s" if speed is not None else "")

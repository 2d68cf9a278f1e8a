"""JSON record of a prompt's result, in the format of docs/run-output.schema.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from gencli.config.job import Job
from gencli.config.options.drafts import NO_DRAFTER
from gencli.config.options.flags import with_flags
from gencli.core.events import Finish, TokenLogprobs
from gencli.engine.beams.results import rounded
from gencli.models.files.checkpoint import ModelIdentity
from gencli.results.draft_report import draft_record
from gencli.results.results import Row, failure, num_samples, tokens_per_second
from gencli.results.scores import entry_record
from gencli.runtime.grammars import Compiled
from gencli.text.tokenizer import Tokenizer
from processors.chain import Chain

__all__ = ["RunInfo", "record", "timings"]


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


def record(row: Row, info: RunInfo) -> dict[str, Any]:
    """Return the record of a prompt.

    With several samples `text` becomes `texts`, and each value of a sample becomes a list.
    """
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
        "grammar": _grammar(info),
        "chain": _stages(info),
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
        **({"token_ids": list(row.ids.of(sample))} if info.job.has_token_ids else {}),
        **_logprobs(row.scores.of(sample), info.job.logprobs, "logprobs", info),
    }


def _logprobs(
    entries: Sequence[TokenLogprobs | None], asked: int | None, key: str, info: RunInfo
) -> dict[str, Any]:
    """Return {key: entries as JSON}; {} if they are not requested."""
    if asked is None:
        return {}
    assert info.tokenizer is not None
    return {key: [entry_record(entry, info.tokenizer) for entry in entries]}


def _search(job: Job) -> dict[str, Any] | None:
    """Return the options of beam search, contrastive search or best-of-n; None without a search."""
    if job.beams is not None:
        return {
            "beams": job.beams.width,
            "length_penalty": job.beams.length_penalty,
            "early_stopping": job.beams.early_stopping,
        }
    if job.contrastive is not None:
        return {"contrastive_alpha": job.contrastive.alpha, "contrastive_k": job.contrastive.k}
    return {"best_of": job.best_of} if job.best_of else None


def _candidates(row: Row) -> list[dict[str, Any]] | None:
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
    """Return the chain. The text of a grammar set by an option is omitted, because it may be long."""
    stages = info.chain.to_list()
    if info.job.structure is not None:
        for stage in stages:
            stage.get("grammar", {}).pop("text", None)
    return stages

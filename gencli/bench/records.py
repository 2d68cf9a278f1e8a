"""The records of `gencli bench`: one class for each benchmark, and what each of its figures means.

The name of a field is the column of the table and the key of the record. Nothing here imports torch, so that
help is quick.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Any

__all__ = [
    "BatchCost",
    "DraftGain",
    "GpuCost",
    "GrammarCost",
    "RunCost",
    "SamplerCost",
    "ServeCost",
    "StageCost",
    "StepCost",
    "figure",
]


def figure(about: str, decimals: int | None = None, default: Any = MISSING) -> Any:
    """Return a dataclass field: what it means, and the decimals that a table shows (None: as it is)."""
    return field(default=default, metadata={"about": about, "decimals": decimals})


@dataclass(frozen=True, slots=True)
class RunCost:
    """Whole processes of one program, medians over the turns. Ratios are of times in the same turn."""

    way: str = figure("gencli and its other flags, transformers or llama.cpp")
    start_s: float = figure("seconds of a process with two tokens a prompt", 2)
    whole_s: float = figure("seconds of a process with all tokens", 2)
    tokens_per_second: float = figure("further tokens of all prompts / (whole_s - start_s)", 1)
    peak_mib: float = figure("peak memory of a process, MiB", 0)
    start_ratio: float = figure("start_s / gencli's start_s", 3)
    whole_ratio: float = figure("whole_s / gencli's whole_s", 3)
    speed_ratio: float = figure("tokens_per_second / gencli's tokens_per_second", 3)


@dataclass(frozen=True, slots=True)
class StepCost:
    """A decode step of the engine without a model."""

    rows: int = figure("texts side by side")
    chain: str = figure("name of the chain")
    step_ms: float = figure("milliseconds of a step, the median", 3)
    least_ms: float = figure("milliseconds of the fastest step", 3)


@dataclass(frozen=True, slots=True)
class SamplerCost:
    """A chain and its draw on the logits of one step, medians over the rounds.

    In a round each way runs three times, of which the median counts.
    """

    width: int = figure("token ids of a row")
    rows: int = figure("rows of logits")
    logits: str = figure("peaked or flat")
    chain: str = figure("stages of the chain")
    gencli_ms: float = figure("milliseconds in gencli", 3)
    transformers_ms: float = figure("milliseconds in transformers", 2)
    logsumexp_ms: float = figure("milliseconds of a torch.logsumexp of the logits", 3)
    speedup: float = figure("transformers_ms / gencli_ms in the same round", 1)
    quartile_1: float = figure("first quartile of the speedup over the rounds", 1)
    quartile_3: float = figure("third quartile of the speedup", 1)
    first_speedup: float = figure("speedup of the first of three calls (caches cold)", 1)
    passes: float = figure("gencli_ms / logsumexp_ms in the same round", 2)


@dataclass(frozen=True, slots=True)
class GpuCost:
    """Predicted and measured time of one part of a decode step on a GPU; None where it is not known."""

    part: str = figure("card, kernel, chain, rejection, layer, product or step")
    what: str = figure("the figure, kernel, chain, part of a layer or model")
    how: str = figure("launched by a graph, or eagerly; options of steps")
    rows: int | None = figure("rows of logits or of a product, or texts side by side")
    width: int | None = figure("token ids of a row, or outputs of a part")
    predicted_us: float | None = figure("predicted microseconds", 1)
    measured_us: float | None = figure("measured microseconds, the median", 1, None)
    gb_per_s: float | None = figure("measured: bytes that have to be read / time", 0, None)
    predicted_share: float | None = figure("% of the read bandwidth, predicted", 0, None)
    measured_share: float | None = figure("% of the read bandwidth, measured", 0, None)
    predicted_rate: float | None = figure("tokens/s of all rows, predicted", 0, None)
    measured_rate: float | None = figure("tokens/s of all rows, measured", 0, None)
    passes: float | None = figure("measured_us / that of torch.logsumexp", 2, None)


@dataclass(frozen=True, slots=True)
class StageCost:
    """One stage on the logits of one step, medians over the rounds; the copy of the logits is not counted."""

    stage: str = figure("name of the stage")
    values: str = figure("the stage with its values")
    rows: int = figure("rows of logits")
    stage_ms: float = figure("milliseconds of the stage", 3)
    logsumexp_ms: float = figure("milliseconds of a torch.logsumexp of the logits", 3)
    passes: float = figure("stage_ms / logsumexp_ms in the same round", 2)


@dataclass(frozen=True, slots=True)
class ServeCost:
    """A load of requests on a server, or in a batch, which has no times of clients: medians of turns."""

    way: str = figure("serve or batch")
    seconds: float = figure("seconds of the whole load", 2)
    tokens: int = figure("output tokens")
    tokens_per_second: float = figure("tokens / seconds", 0)
    first_p50_ms: float | None = figure("milliseconds to the first token, the median", 1)
    first_p99_ms: float | None = figure("milliseconds to the first token, 99th percentile", 1)
    between_p50_ms: float | None = figure("milliseconds between tokens, the median", 2)
    between_p99_ms: float | None = figure("milliseconds between tokens, 99th percentile", 2)


@dataclass(frozen=True, slots=True)
class BatchCost:
    """One load of requests in one implementation, medians over the rounds."""

    prefix: int = figure("tokens that all prompts begin with")
    way: str = figure("gencli, gencli with int8, or a method of transformers")
    requests: int = figure("requests of the load")
    output_tokens: int = figure("tokens generated in all")
    whole_s: float = figure("seconds of the whole load", 2)
    tokens_per_second: float = figure("output_tokens / whole_s", 0)
    ratio: float = figure("whole_s / gencli's whole_s in the same round", 2)
    equal: int = figure("requests with the same token ids as in gencli")
    occupancy: float | None = figure("share of slots in use while requests wait, 0 to 1", 3)


@dataclass(frozen=True, slots=True)
class GrammarCost:
    """Steps with a JSON schema and steps without one in turns, medians over the steps of all rows."""

    backend: str = figure("grammar back end")
    rows: int = figure("texts side by side")
    compile_ms: float = figure("milliseconds to compile the schema, once", 3)
    fill_ms: float = figure("milliseconds a step to fill the masks of allowed tokens", 3)
    apply_ms: float = figure("milliseconds a step to apply the masks to the logits", 3)
    step_ms: float = figure("milliseconds of a step with the schema", 3)
    free_step_ms: float = figure("milliseconds of a step without it", 3)
    ratio: float = figure("step_ms / free_step_ms of neighbouring steps", 3)


@dataclass(frozen=True, slots=True)
class DraftGain:
    """Decoding with up to `drafts` draft tokens a step against plain steps, medians over the steps.

    `expected` is the speedup by the formula for these costs, and for the acceptance over all numbers of
    drafts.
    """

    rows: int = figure("texts side by side")
    drafts: int = figure("draft tokens of a text in a step, at most")
    plain_tokens_per_second: float = figure("tokens of all texts, plain steps", 1)
    tokens_per_second: float = figure("tokens of all texts, steps with drafts", 1)
    tokens_per_forward: float = figure("tokens of a text for each pass of the model", 2)
    acceptance: float | None = figure("P(a draft token after accepted ones is accepted)", 2)
    draft: float = figure("time to make the drafts / time of a plain step", 2)
    verify: float = figure("time that checking them adds / a plain step", 2)
    expected: float = figure("speedup by the formula for these costs", 2)
    speedup: float = figure("tokens_per_second / plain_tokens_per_second", 2)

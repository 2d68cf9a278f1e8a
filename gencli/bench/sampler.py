"""A chain and its draw on the logits of one step: gencli, transformers, and torch.logsumexp."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from gencli.bench.records import SamplerCost
from processors.base import Admission, Env
from processors.chain import Chain
from processors.choose import Chooser
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import Sampler

__all__ = ["CHAINS", "KINDS", "THEIRS", "made_logits", "measure_sampler", "timed"]

KINDS = ("peaked", "flat")  # kinds of logits
THEIRS = ("repetition", "temperature", "top_k", "top_p", "min_p")  # stages of transformers, in its order

CHAINS = (
    "repetition=1.1 | temperature=0.8 | top_k=50 | top_p=0.9",
    "temperature=0.8 | top_p=0.9",
    "temperature=0.8 | min_p=0.05",
    "temperature=0.8",
)
_PROMPT = 300  # tokens seen by a penalty
_BULK, _HEAD, _TOP, _FALL = 2.2, 1000, 20.0, 1.5
_BURST = 3  # runs of a way in a round
_Run = Callable[[], object]


def made_logits(kind: str, rows: int, width: int, seed: int = 0) -> Tensor:
    """Return logits [rows, width] float32 by kind.

    `peaked`: similar to a language model's. Normal with standard deviation 2.2, except 1,000 random ids of
    each row (at most an eighth), which have 20 - 1.5 ln(rank), so that their probabilities fall as rank **
    -1.5. After a temperature of 0.8 a nucleus of 0.9 has 8 ids of 128,256. `flat`: normal with standard
    deviation 0.1; a nucleus of 0.9 has nine tenths of all ids.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, width, generator=generator)
    if kind == "flat":
        return logits.mul_(0.1)
    logits.mul_(_BULK)
    head = min(_HEAD, max(1, width // 8))
    values = _TOP - _FALL * torch.arange(1, head + 1).log()
    for row in logits:
        row[torch.randperm(width, generator=generator)[:head]] = values
    return logits


def measure_sampler(
    chains: Sequence[Chain], kinds: Sequence[str], widths: Sequence[int], counts: Sequence[int], repeats: int
) -> Iterator[SamplerCost]:
    """Yield the cost of each chain by kind of logits, width and number of rows; all take turns each round.

    The stages of the chains have to be among `THEIRS`.
    """
    for width in widths:
        for kind in kinds:
            for rows in counts:
                logits = made_logits(kind, rows, width)
                for chain in chains:
                    yield _measured(chain, kind, logits, repeats)


def _measured(chain: Chain, kind: str, logits: Tensor, repeats: int) -> SamplerCost:
    ways: tuple[_Run, ...] = (_ours(chain, logits), _theirs(chain, logits), lambda: logits.logsumexp(-1))
    times = [[[timed(way) for _ in range(_BURST)] for way in ways] for _ in range(repeats + 1)][1:]
    rounds = [[statistics.median(burst) for burst in bursts] for bursts in times]
    ours, theirs, passes = (statistics.median(column) for column in zip(*rounds, strict=True))
    speedups = sorted(there / here for here, there, _ in rounds)
    return SamplerCost(
        width=logits.shape[1],
        rows=len(logits),
        logits=kind,
        chain=str(chain),
        gencli_ms=ours,
        transformers_ms=theirs,
        logsumexp_ms=passes,
        speedup=statistics.median(speedups),
        quartile_1=speedups[repeats // 4],
        quartile_3=speedups[-1 - repeats // 4],
        first_speedup=statistics.median(there[0] / here[0] for here, there, _ in times),
        passes=statistics.median(here / one for here, _, one in rounds),
    )


@torch.inference_mode()
def timed(way: _Run) -> float:
    """Return the milliseconds that a call takes."""
    start = time.perf_counter()
    way()
    return (time.perf_counter() - start) * 1e3


def _prompt(row: int, width: int) -> tuple[int, ...]:
    return tuple((7919 * (row + place)) % width for place in range(_PROMPT))


def _ours(chain: Chain, logits: Tensor) -> _Run:
    """Return chain and draw as the engine runs them, with rows built before the forward pass."""
    rows, width = logits.shape
    pipeline, sampler, history = Pipeline(Env(width)), Sampler(), History(slots=rows)
    for slot in range(rows):
        prompt = _prompt(slot, width)
        history.admit(slot, prompt, seed=slot)
        pipeline.admit(slot, chain, Admission(prompt))
        sampler.admit(slot, "gumbel")
    step = pipeline.prepare(Rows.build(history, range(rows)))
    chooser = Chooser(pipeline, sampler)
    return lambda: chooser(logits, step)


def _theirs(chain: Chain, logits: Tensor) -> _Run:
    """Return chain and draw as transformers' generate() runs them: copy, processors, softmax, multinomial."""
    processors = [
        _processor(name, params) for name, params in sorted(chain, key=lambda one: THEIRS.index(one[0]))
    ]
    ids = torch.tensor([_prompt(row, logits.shape[1]) for row in range(len(logits))])

    def run() -> Tensor:
        scores = logits.to(torch.float32, copy=True)
        for processor in processors:
            scores = processor(ids, scores)
        return torch.multinomial(scores.softmax(dim=-1), num_samples=1).squeeze(1)

    return run


def _processor(name: str, params: Any) -> Any:
    from transformers.generation import logits_process as theirs

    made = {
        "repetition": lambda: theirs.RepetitionPenaltyLogitsProcessor(params.penalty),
        "temperature": lambda: theirs.TemperatureLogitsWarper(params.temperature),
        "top_k": lambda: theirs.TopKLogitsWarper(params.k),
        "top_p": lambda: theirs.TopPLogitsWarper(params.p),
        "min_p": lambda: theirs.MinPLogitsWarper(params.p),
    }
    return made[name]()

"""Measure a chain and its draw beside transformers.

python scripts/bench/sampler.py --help
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
import typer
from report import LogitRows, Repeats, measuring, run_benchmark
from torch import Tensor

from gencli.cli.commands.bench import Form, Threads, figure, write_report
from gencli.errors import UsageError
from processors.base import Admission, Env
from processors.chain import Chain
from processors.chooser import Chooser
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import Sampler


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


_Chains = Annotated[
    list[str] | None,
    typer.Option(
        "--chain",
        metavar="CHAIN",
        help='Stages, as in "temperature=0.8 | top_p=0.9", of repetition, temperature, top_k, top_p and '
        "min_p; four chains if not given. (repeatable)",
    ),
]
_Widths = Annotated[
    list[int] | None,
    typer.Option(
        "--width", min=64, max=1 << 20, metavar="N", help="Ids of a row; 128256 if not given. (repeatable)"
    ),
]
_Logits = Annotated[
    Literal["peaked", "flat", "both"],
    typer.Option(
        "--logits",
        help="peaked: as of a language model, a head that falls as rank ** -1.5 over normal ones of "
        "deviation 2.2; flat: normal of deviation 0.1, the worst case.",
    ),
]


def sampler(
    chain: _Chains = None,
    rows: LogitRows = None,
    width: _Widths = None,
    logits: _Logits = "peaked",
    repeats: Repeats = 7,
    threads: Threads = 2,
    form: Form = "text",
) -> int:
    """Measure chains with their draws, alternating with transformers, and print the costs.

    Return the exit code. Raises UsageError for a stage that transformers lacks.
    """
    with measuring(threads):
        chains, kinds = [_parsed(text) for text in chain or CHAINS], KINDS if logits == "both" else (logits,)
        costs = [*measure_sampler(chains, kinds, width or (128_256,), rows or (1, 8, 32), repeats)]
    write_report(costs, form, conditions={"dtype": "float32", "threads": threads, "rounds": repeats})
    return 0


def _parsed(text: str) -> Chain:
    from processors.chain import Chain

    chain = Chain.parse(text).active()
    for name, _ in chain:
        if name not in THEIRS:
            raise UsageError(
                f"--chain has the stage {name}, which is not measured.", hint=f"Use {', '.join(THEIRS)}."
            )
    return chain


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


MEASURES = (
    "Measure a chain and its draw on the logits of one step: in gencli, and with the logits processors, "
    "softmax and multinomial of transformers. A torch.logsumexp of the same logits shows the time of a "
    "single pass over them. All three take turns."
)

if __name__ == "__main__":
    sys.exit(run_benchmark(sampler, MEASURES, SamplerCost))

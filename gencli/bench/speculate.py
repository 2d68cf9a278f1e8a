"""What drafts bring: steps with 0, 1, 2, ... of them against plain steps, in turns, beside the formula."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import fmean, median

from gencli.bench.probes import Probe, ProbingDrafter
from gencli.core.events import Error, Finish
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.errors import GenerationError
from gencli.models.base import ModelRunner
from gencli.runtime.wiring import bare_engine
from gencli.speculative.base import Drafter
from gencli.speculative.gain import tokens_per_step
from gencli.text.tokenizer import Tokenizer
from processors.chain import Chain

__all__ = ["DraftGain", "best", "break_even", "measure_drafts"]

_WARM = 2  # probes of each kind before the clock counts
_IDLE = 20  # texts without a probe after which it is given up


@dataclass(frozen=True, slots=True)
class DraftGain:
    """`rows` texts with up to `drafts` each: tokens a second of all of them, plain steps' beside it.

    `acceptance` is how often a draft stands behind drafts that stand. `draft` and `verify` say what the
    drafts and their rows took, in plain steps; `expected` is what the formula makes of these and of the
    acceptance of all lengths together, `speedup` what was measured.
    """

    rows: int
    drafts: int
    plain_tokens_per_second: float
    tokens_per_second: float
    tokens_per_forward: float
    acceptance: float | None
    draft: float
    verify: float
    expected: float
    speedup: float


def measure_drafts(
    runner: ModelRunner,
    tokenizer: Tokenizer,
    drafter: Drafter,
    prompts: Sequence[str],
    *,
    rows: int,
    lengths: Sequence[int],
    steps: int,
    max_tokens: int,
    temperature: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[DraftGain]:
    """Yield a line for each of the lengths: medians of `steps` steps, and of as many plain ones between them.

    Texts go on for `max_tokens`, whatever they say. Raises GenerationError where they are too short to
    measure anything.
    """
    probing = ProbingDrafter(drafter, lengths, lanes=rows, clock=clock)
    engine = bare_engine(
        runner, tokenizer, max_batch=rows, drafter=probing, clock=clock, share_prefixes=False
    )
    chain = Chain.parse(f"ignore_eos=true | temperature={temperature}")
    requests = (
        Request(
            str(number),
            tuple(tokenizer.encode(prompts[number % len(prompts)])),
            chain,
            seed=number,
            limits=Limits(max_tokens),
            draw="greedy" if temperature == 0 else "gumbel",
        )
        for number in count()
    )
    _probe(engine, probing, requests, rows=rows, rounds=steps + _WARM)
    rate = _acceptance([probe for probes in probing.drafted for probe in probes[_WARM:]])
    for length, plain, drafted in zip(lengths, probing.plain, probing.drafted, strict=True):
        yield _gain(rows, length, plain[_WARM:], drafted[_WARM:], rate)


def _probe(
    engine: Engine, probing: ProbingDrafter, requests: Iterator[Request], *, rows: int, rounds: int
) -> None:
    """Generate until all lengths have been tried so often."""
    for _ in range(rows + 1):  # the next one waits
        engine.submit(next(requests))
    ended, seen = 0, 0
    for event in engine.run():
        if isinstance(event, Error):
            raise GenerationError(event.message)
        if probing.rounds >= rounds:
            engine.interrupt()
        elif isinstance(event, Finish):
            ended, seen = (ended + 1, seen) if probing.rounds == seen else (0, probing.rounds)
            if ended > _IDLE * rows:
                raise GenerationError("The texts are too short for so many drafts; allow more tokens.")
            engine.submit(next(requests))


def _gain(
    rows: int, length: int, plain: Sequence[Probe], drafted: Sequence[Probe], rate: float | None
) -> DraftGain:
    step, plain_step = (median(probe.seconds for probe in probes) for probes in (drafted, plain))
    draft = median(probe.draft_seconds for probe in drafted) / plain_step
    tokens = fmean(1 + kept for probe in drafted for kept in probe.kept)
    expected = fmean(tokens_per_step(rate or 0.0, drafts) for probe in drafted for drafts in probe.drafts)
    return DraftGain(
        rows=rows,
        drafts=length,
        plain_tokens_per_second=rows / plain_step,
        tokens_per_second=rows * tokens / step,
        tokens_per_forward=tokens,
        acceptance=_acceptance(drafted),
        draft=draft,
        verify=step / plain_step - draft - 1,
        expected=expected * plain_step / step,
        speedup=tokens * plain_step / step,
    )


def _acceptance(probes: Sequence[Probe]) -> float | None:
    """Drafts that stand of those that stand behind such; None without drafts."""
    pairs = [pair for probe in probes for pair in zip(probe.drafts, probe.kept, strict=True)]
    trials = sum(min(kept + 1, drafts) for drafts, kept in pairs)
    return sum(kept for _, kept in pairs) / trials if trials else None


def best(gains: Sequence[DraftGain]) -> tuple[DraftGain, ...]:
    """For each number of rows the fastest."""
    numbers = sorted({gain.rows for gain in gains})
    return tuple(max((g for g in gains if g.rows == n), key=lambda g: g.speedup) for n in numbers)


def break_even(gains: Sequence[DraftGain]) -> float | None:
    """Return the rows at which the best number of drafts gains nothing; None if it gains with all that were tried.

    Between two numbers of rows that were tried it lies on a straight line over the logarithm of the rows.
    Where the fewest rows lose already it is 0.
    """
    tops = best([gain for gain in gains if gain.drafts])
    for below, above in zip((None, *tops), tops, strict=False):
        if above.speedup <= 1:
            if below is None:
                return 0.0
            share = (below.speedup - 1) / (below.speedup - above.speedup)
            return math.exp(math.log(below.rows) + share * math.log(above.rows / below.rows))
    return None

"""Speedup by drafts: steps with 1, 2, ... draft tokens against plain steps, and the formula's prediction."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from statistics import fmean, median

from gencli.bench.probes import Probe, ProbingDrafter
from gencli.bench.records import DraftGain
from gencli.core.events import Error, Finish
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.errors import GenerationError
from gencli.models.base import ModelRunner
from gencli.runtime.wiring import bare_engine
from gencli.speculative.base import Drafter
from gencli.speculative.costs import tokens_per_step
from gencli.text.tokenizer import Tokenizer
from processors.chain import Chain

__all__ = ["best", "break_even", "measure_drafts"]

_WARM = 2  # probes of each kind that are not measured
_IDLE = 20  # sequences per row without a probe, after which measuring fails


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
    """Yield a result for each length: medians of `steps` steps, and of equally many plain steps between them.

    Each sequence has `max_tokens` tokens. Raises GenerationError if that is too short to measure.
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
    """Generate until each length has `rounds` probes."""
    for _ in range(rows + 1):  # one more waits in the queue
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
    tokens = fmean(1 + accepted for probe in drafted for accepted in probe.accepted)
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
    """Return the share of accepted draft tokens among those after accepted ones.

    None without draft tokens.
    """
    pairs = [pair for probe in probes for pair in zip(probe.drafts, probe.accepted, strict=True)]
    trials = sum(min(accepted + 1, drafts) for drafts, accepted in pairs)
    return sum(accepted for _, accepted in pairs) / trials if trials else None


def best(gains: Sequence[DraftGain]) -> tuple[DraftGain, ...]:
    """Return the fastest result for each number of rows."""
    numbers = sorted({gain.rows for gain in gains})
    return tuple(max((g for g in gains if g.rows == n), key=lambda g: g.speedup) for n in numbers)


def break_even(gains: Sequence[DraftGain]) -> float | None:
    """Return the number of rows at which the best draft length gains nothing.

    The value is interpolated on the logarithm of the rows. It is 0 if the smallest number of rows gains
    nothing, None if all measured numbers gain.
    """
    fastest = best([gain for gain in gains if gain.drafts])
    for below, above in zip((None, *fastest), fastest, strict=False):
        if above.speedup <= 1:
            if below is None:
                return 0.0
            share = (below.speedup - 1) / (below.speedup - above.speedup)
            return math.exp(math.log(below.rows) + share * math.log(above.rows / below.rows))
    return None

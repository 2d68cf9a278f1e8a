"""Measure steps with draft tokens against plain ones.

python scripts/bench/speculate.py --help
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import typer
from report import measuring, run_benchmark

from gencli.cli.commands.bench import Form, Threads, figure, write_report
from gencli.cli.render import say_notice
from gencli.config.option import MAX_BATCH
from gencli.core.events import Error, Finish
from gencli.core.request import NO_DRAFTER, Limits, Request
from gencli.engine.engine import Engine
from gencli.errors import GenerationError, UsageError
from gencli.files import MAX_PROMPT, read_file
from gencli.models.model_runner import ModelRunner
from gencli.runtime.wiring import bare_engine
from gencli.speculative.adaptive_drafts import tokens_per_step
from gencli.speculative.drafter import DraftAsk, Drafter, MeasuredStep, OuterDrafter
from gencli.text.tokenizer import Tokenizer
from processors.chain import Chain
from processors.params import whole


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


_STORIES = ("Once upon a time", "Mood: happy\nStory:", "One day a girl found a box.", "Dear Mia,")
_Model = Annotated[str, typer.Option("--model", metavar="MODEL", help="The target model.")]
_Draft = Annotated[str, typer.Option("--draft", metavar="NAME", help="The drafter, as in gencli run.")]
_Drafts = Annotated[
    str, typer.Option("--draft-tokens", metavar="LIST", help="Numbers of drafts: 0..8, or 1,2,4.")
]
_Rows = Annotated[str, typer.Option("--rows", metavar="LIST", help="Numbers of texts side by side.")]
_Tokens = Annotated[
    int, typer.Option("--max-tokens", min=8, max=1_000_000, metavar="N", help="Tokens of a text.")
]
_Steps = Annotated[
    int, typer.Option("--steps", min=1, max=1_000_000, metavar="N", help="Steps that are timed of each kind.")
]
_Prompts = Annotated[
    Path | None,
    typer.Option(
        "--prompts", metavar="FILE", help='JSON lines with "prompt"; beginnings of stories if not given.'
    ),
]
_Temperature = Annotated[
    float, typer.Option("--temperature", min=0.0, max=1e6, metavar="T", help="0 is greedy.")
]
_Dtype = Annotated[
    str, typer.Option("--dtype", metavar="NAME", help="Type of the weights, as in gencli run.")
]
_Cpu = Annotated[
    bool, typer.Option("--cpu-time", help="Count the CPU seconds of the process, for a busy machine.")
]


def speculate(
    model: _Model = "tiny",
    draft: _Draft = "tiny-draft",
    draft_tokens: _Drafts = "0..8",
    rows: _Rows = "1,4,16",
    max_tokens: _Tokens = 128,
    steps: _Steps = 20,
    prompts: _Prompts = None,
    temperature: _Temperature = 0.0,
    dtype: _Dtype = "float32",
    threads: Threads = 1,
    cpu_time: _Cpu = False,
    form: Form = "text",
) -> int:
    """Measure plain steps and steps with drafts in turns and print the gains. Return the exit code.

    Raises UsageError for a bad list of numbers, for --draft none and for --prompts that cannot be read.
    """
    lengths, counts = _numbers("--draft-tokens", draft_tokens, 0, 64), _numbers("--rows", rows, 1, MAX_BATCH)
    if draft == NO_DRAFTER:
        raise UsageError("--draft is none, so there is nothing to measure.", hint="Name a drafter.")
    texts = _read(prompts) if prompts else _STORIES
    with measuring(threads):
        gains = _gains(
            model,
            draft,
            texts,
            counts,
            dtype=dtype,
            lengths=lengths,
            steps=steps,
            max_tokens=max_tokens,
            temperature=temperature,
            clock=time.process_time if cpu_time else time.perf_counter,
        )
    conditions = {
        "model": model,
        "draft": draft,
        "dtype": dtype,
        "threads": threads,
        "temperature": temperature,
        "steps": steps,
        "clock": "CPU seconds" if cpu_time else "seconds",
    }
    _write(gains, form, conditions)
    return 0


def _gains(
    model: str,
    draft: str,
    texts: Sequence[str],
    counts: Sequence[int],
    *,
    dtype: str,
    **probing: Any,
) -> list[DraftGain]:
    """Return the gains for each number of rows; `probing` are further arguments of `measure_drafts`."""
    from gencli.runtime.model_loading import ModelChoice, load
    from gencli.runtime.wiring import bare_drafter

    choice = ModelChoice(model, dtype=dtype, max_batch=max(counts))
    loaded = load(choice)
    drafter = bare_drafter(draft, loaded, choice)
    for text in drafter.notices:
        say_notice(text)
    return [
        gain
        for count in counts
        for gain in measure_drafts(loaded.runner, loaded.tokenizer, drafter, texts, rows=count, **probing)
    ]


def _write(gains: Sequence[DraftGain], form: str, conditions: Mapping[str, Any]) -> None:

    tops, even = best(gains), break_even(gains)
    lines = [
        f"Best with {top.rows} row(s): {top.drafts} drafts, {top.speedup:.2f} times plain." for top in tops
    ]
    write_report(
        gains,
        form,
        conditions=conditions,
        summary={"best": {str(top.rows): top.drafts for top in tops}, "break_even_rows": even},
        lines=[*lines, _verdict(even, tops[-1].rows)],
    )


def _verdict(even: float | None, most: int) -> str:
    if even is None:
        return f"Break-even: beyond {most} row(s)."
    return f"Break-even: at about {even:.0f} row(s)." if even else "Break-even: drafts lose with any rows."


def _numbers(flag: str, given: str, least: int, most: int) -> tuple[int, ...]:
    """Return the numbers of a range "0..8" or of a list "1,4,16". Raises UsageError outside [least, most]."""
    first, dots, last = given.partition("..")
    parts = [first, last] if dots else given.split(",")
    numbers = [number for part in parts if (number := whole(part.strip())) is not None]
    if len(numbers) < len(parts):
        raise UsageError(f"{flag} {given[:60]!r} is no list of numbers.", hint="Write 0..8, or 1,4,16.")
    if min(numbers) < least or max(numbers) > most:
        raise UsageError(f"{flag} {given!r} has to name numbers from {least} to {most}.")
    if dots and numbers[0] > numbers[1]:
        raise UsageError(f"{flag} {given!r} runs backwards.", hint=f"Write {numbers[1]}..{numbers[0]}.")
    return tuple(range(numbers[0], numbers[1] + 1)) if dots else tuple(numbers)


def _read(path: Path) -> tuple[str, ...]:
    try:
        lines = read_file(path, MAX_PROMPT, pipes=True).decode().splitlines()
        return tuple(json.loads(line)["prompt"] for line in lines if line.strip())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"--prompts {path} cannot be read as JSON lines with prompts: {error}") from None


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


@dataclass(frozen=True, slots=True)
class Probe:
    """One step of all sequences: proposed and accepted draft tokens of each, and seconds.

    `seconds` is the time of the step up to the next one; `draft_seconds` is the part spent on drafting.
    """

    drafts: tuple[int, ...]
    accepted: tuple[int, ...]
    seconds: float
    draft_seconds: float


class ProbingDrafter(OuterDrafter):
    """Proposes `lengths[0]`, `lengths[1]`, ... tokens of another drafter in turn, after a plain step each.

    A step counts if `lanes` sequences decode, none reads a prompt, begins or ends, and all have room for the
    draft; other steps are repeated. `drafted[i]` are the probes with `lengths[i]` draft tokens, `plain[i]`
    the probes before them.
    """

    def __init__(
        self, inner: Drafter, lengths: Sequence[int], *, lanes: int, clock: Callable[[], float]
    ) -> None:
        super().__init__(inner)
        self._drafter, self._lengths, self._lanes, self._clock = inner, tuple(lengths), lanes, clock
        self.plain: list[list[Probe]] = [[] for _ in lengths]
        self.drafted: list[list[Probe]] = [[] for _ in lengths]
        self._turn = 0  # 2 i: the plain step before lengths[i]; 2 i + 1: the step with drafts
        self._began, self._drafting, self._is_whole = 0.0, 0.0, False
        self._seen: dict[int, tuple[int, int]] = {}  # by slot: proposed, accepted
        self._open: Probe | None = None

    @property
    def rounds(self) -> int:
        """The number of probes of each length."""
        return len(self.drafted[-1])

    def admit(self, slot: int, request: Request) -> None:
        self._open = None  # the step included prefill
        super().admit(slot, request)

    def propose(self, asks: Sequence[DraftAsk]) -> Sequence[Sequence[int]]:
        start = self._clock()
        self._close(start)
        length = self._lengths[self._turn // 2] if self._turn % 2 else 0
        limited = [replace(ask, most=min(length, ask.most)) for ask in asks]
        runs: Sequence[Sequence[int]] = self._drafter.propose(limited) if length else [()] * len(asks)
        self._drafting = self._clock() - start if length else 0.0
        is_reading = bool(length) and self._drafter.is_reading
        self._is_whole = not is_reading and all(ask.most >= length for ask in asks)
        self._seen = {ask.slot: (0, 0) for ask in asks}
        return runs

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        self._seen[slot] = proposed, accepted
        self._drafter.observe(slot, proposed=proposed, accepted=accepted)

    def measure(self, step: MeasuredStep) -> None:
        self._drafter.measure(step)
        if self._is_whole and step.lanes == len(self._seen) == self._lanes:
            drafts, accepted = zip(*self._seen.values(), strict=True)
            self._open = Probe(drafts, accepted, 0.0, self._drafting)
        self._is_whole = False

    def _close(self, now: float) -> None:
        """End the probe of the step before this one."""
        if self._open is not None:
            probes = self.drafted if self._turn % 2 else self.plain
            probes[self._turn // 2].append(replace(self._open, seconds=now - self._began))
            self._turn = (self._turn + 1) % (2 * len(self._lengths))
        self._open, self._began = None, now


MEASURES = (
    "Measure steps with draft tokens against plain steps, for each number of draft tokens and of texts. "
    "Both kinds of step take turns. The last lines name the best number of draft tokens, and the number "
    "of texts from which on drafts gain nothing."
)

if __name__ == "__main__":
    sys.exit(run_benchmark(speculate, MEASURES, DraftGain))

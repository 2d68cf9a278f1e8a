"""Whole runs as a person starts them, alternating: gencli, transformers, llama.cpp."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gencli.bench.records import RunCost
from gencli.errors import ModelError

__all__ = ["Run", "Way", "measure_runs"]

_FEW = 2  # tokens of the short run, which measures the start-up time


@dataclass(frozen=True, slots=True)
class Run:
    """A run of `rows` prompts with `tokens` output tokens each, on `threads` threads."""

    tokens: int
    rows: int
    threads: int


@dataclass(frozen=True, slots=True)
class Way:
    """A program that generates: `command` makes its command line for a number of tokens."""

    name: str
    head: tuple[str, ...]
    tail: tuple[str, ...]

    def command(self, tokens: int) -> list[str]:
        """Return the command line of a run with this many output tokens."""
        return [*self.head, str(tokens), *self.tail]


@dataclass(frozen=True, slots=True)
class _Turn:
    start: float
    whole: float
    speed: float
    peak: int


def measure_runs(ways: Sequence[Way], run: Run, turns: int) -> Iterator[RunCost]:
    """Run all ways in turns; yield the costs of each. Raises ModelError if a run fails."""
    seen: dict[str, list[_Turn]] = {way.name: [] for way in ways}
    for _ in range(turns):
        for way in ways:
            start, _ = _timed(way, _FEW)
            whole, peak = _timed(way, run.tokens)
            # On a busy machine the short run may take longer.
            speed = run.rows * (run.tokens - _FEW) / (whole - start) if whole > start else 0.0
            seen[way.name].append(_Turn(start, whole, speed, peak))
    first = seen[ways[0].name]
    for name, made in seen.items():
        pairs = list(zip(made, first, strict=True))
        yield RunCost(
            name,
            start_s=statistics.median(one.start for one in made),
            whole_s=statistics.median(one.whole for one in made),
            tokens_per_second=statistics.median(one.speed for one in made),
            peak_mib=max(one.peak for one in made) / 2**20,
            start_ratio=statistics.median(own.start / base.start for own, base in pairs),
            whole_ratio=statistics.median(own.whole / base.whole for own, base in pairs),
            speed_ratio=statistics.median(
                own.speed / base.speed if base.speed else 0.0 for own, base in pairs
            ),
        )


def _timed(way: Way, tokens: int) -> tuple[float, int]:
    """Return the seconds and the peak memory in bytes of one process."""
    command = way.command(tokens)
    environ = {**os.environ, "HF_HUB_OFFLINE": "1"}
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environ) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if process.returncode:
        last = said.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise ModelError(f"The run of {way.name} ended with exit code {process.returncode}: {last[0]}")
    return seconds, usage.ru_maxrss * 1024

"""Costs of steps and drafts, acceptance rates, the expected gain of drafting, and the clock for costs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection

import torch

__all__ = ["Acceptance", "Clock", "Costs", "StepCostModel", "speedup", "tokens_per_step", "work_clock"]

_MEMORY = 7  # latest measurements kept of each kind
_MIN_PLAIN = 3  # plain steps; with fewer their cost is unknown


class Costs:
    """Time of plain steps in seconds, by batch size, and costs of drafting in plain steps.

    Each cost is the lower quartile of the latest measurements, since other load only makes steps slower.
    """

    def __init__(self) -> None:
        self._plain: dict[int, deque[float]] = {}
        self._verify: dict[int, deque[float]] = {}  # by mean number of draft tokens per text
        self._draft: deque[float] = deque(maxlen=_MEMORY)

    def plain(self, lanes: int) -> float | None:
        """Seconds of a plain step; None if unknown for batch sizes within 25 % of `lanes`."""
        known = [
            n for n, seen in self._plain.items() if len(seen) >= _MIN_PLAIN and abs(n - lanes) <= lanes / 4
        ]
        return _lower_quartile(self._plain[min(known, key=lambda n: abs(n - lanes))]) if known else None

    def verify(self, drafts: float) -> float:
        """Extra time of a step with `drafts` draft tokens per text, in plain steps.

        That of the nearest measured number, and at most that of any larger one.
        """
        if not self._verify:
            return 0.0
        nearest = min(self._verify, key=lambda n: abs(n - drafts))
        return min(_lower_quartile(seen) for n, seen in self._verify.items() if n >= nearest)

    @property
    def draft(self) -> float | None:
        """Cost of drafting as `add_draft` takes it, in plain steps; None before the first."""
        return _lower_quartile(self._draft) if self._draft else None

    def add_plain(self, lanes: int, seconds: float) -> None:
        """Record the time of a plain step."""
        self._plain.setdefault(lanes, deque(maxlen=_MEMORY)).append(seconds)

    def add_verify(self, drafts: float, extra: float, *, longest: int) -> None:
        """Record the extra time of a step, in plain steps, with `drafts` draft tokens per text on average.

        `longest`: most draft tokens of a text. It limits the cost: fed one by one, they take a plain step
        each.
        """
        self._verify.setdefault(round(drafts), deque(maxlen=_MEMORY)).append(min(max(extra, 0.0), longest))

    def add_draft(self, cost: float) -> None:
        """Record the cost of drafting: of one token if the drafter is autoregressive, else of all."""
        self._draft.append(cost)


class Acceptance:
    """Acceptance rate of a draft token, given that those before it were accepted.

    Each new trial multiplies the weight of older ones by `fading`. The prior has the weight of `weight`
    trials.
    """

    def __init__(self, *, weight: float, fading: float) -> None:
        self._weight, self._fading = weight, fading
        self._trials, self._hits = 0.0, 0.0

    def add(self, *, proposed: int, accepted: int) -> None:
        """Count one run of drafts. Tokens after the first rejected one are not trials."""
        for position in range(min(accepted + 1, proposed)):
            self._trials = self._trials * self._fading + 1
            self._hits = self._hits * self._fading + (position < accepted)

    def rate(self, prior: float) -> float:
        """The acceptance rate in 0..1: (hits + weight * prior) / (trials + weight)."""
        return (self._hits + self._weight * prior) / (self._trials + self._weight)


def _lower_quartile(seen: Collection[float]) -> float:
    return sorted(seen)[len(seen) // 4]


def tokens_per_step(acceptance: float, length: int) -> float:
    """Expected tokens per step with k = `length` draft tokens, including the one that every step chooses.

    (1 - a^(k+1)) / (1 - a) with acceptance rate a per draft token (Leviathan, Kalman, Matias 2023).
    """
    if acceptance >= 1:
        return length + 1.0
    return float((1 - acceptance ** (length + 1)) / (1 - acceptance))


def speedup(acceptance: float, length: int, *, draft: float, verify: float) -> float:
    """Expected tokens per second relative to plain steps: tokens_per_step / (1 + draft + verify).

    `draft`: cost of drafting all tokens, in plain steps. `verify`: extra cost of verifying them.
    """
    return tokens_per_step(acceptance, length) / (1 + draft + verify)


_DECAY = 0.97  # weight of a step relative to the step after it
_MIN_STEPS = 8.0  # weighted number of steps below which the cost is unknown
_MIN_VARIANCE = 0.25  # of the tokens per step, in tokens squared; below it the slope is undetermined


class StepCostModel:
    """Step time as a linear function of the tokens fed: t(n) = base + slope * n, in seconds.

    Least squares over past steps, exponentially weighted (decay 0.97 per step). Reads no clock.
    """

    def __init__(self) -> None:
        self._steps = self._tokens = self._seconds = self._squares = self._products = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Add a step that fed `num_tokens` tokens in `seconds`."""
        self._steps = self._steps * _DECAY + 1
        self._tokens = self._tokens * _DECAY + num_tokens
        self._seconds = self._seconds * _DECAY + seconds
        self._squares = self._squares * _DECAY + num_tokens * num_tokens
        self._products = self._products * _DECAY + num_tokens * seconds

    def draft_cost(self, batch_size: int) -> float:
        """Cost of one draft token relative to one token of a plain step of `batch_size` texts, in 0..1.

        slope * batch_size / (base + slope * batch_size); 0 while it is unknown. A draft token pays if its
        acceptance probability exceeds this cost.
        """
        spread = self._steps * self._squares - self._tokens**2
        if self._steps < _MIN_STEPS or spread < _MIN_VARIANCE * self._steps**2:
            return 0.0
        slope = (self._steps * self._products - self._tokens * self._seconds) / spread
        base = (self._seconds - slope * self._tokens) / self._steps
        if slope <= 0:
            return 0.0
        return slope * batch_size / (max(base, 0.0) + slope * batch_size)


Clock = Callable[[], float]  # seconds

_MAX_RESOLUTION = 1e-5  # seconds, far below a step's duration


def work_clock(device: torch.device) -> Clock:
    """Return `time.thread_time` for a model on a CPU, `time.perf_counter` otherwise.

    Thread time leaves out the load of other processes. Beside an accelerator the thread is idle, and where
    its resolution is coarser than 10 µs it is too inexact; then the wall clock is used.
    """
    is_fine = time.get_clock_info("thread_time").resolution <= _MAX_RESOLUTION
    return time.thread_time if device.type == "cpu" and is_fine else time.perf_counter

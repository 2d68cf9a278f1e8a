"""A drafter that alternates steps with and without draft tokens, and times each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter, Measured
from gencli.speculative.draft_sampler import DraftSampler

__all__ = ["Probe", "ProbingDrafter"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One step of all sequences: proposed and accepted draft tokens of each, and seconds.

    `seconds` is the time of the step up to the next one; `draft_seconds` is the part spent on drafting.
    """

    drafts: tuple[int, ...]
    accepted: tuple[int, ...]
    seconds: float
    draft_seconds: float


class ProbingDrafter(Drafter):
    """Proposes `lengths[0]`, `lengths[1]`, ... tokens of another drafter in turn, after a plain step each.

    A step counts if `lanes` sequences decode, none reads a prompt, begins or ends, and all have room for the
    draft; other steps are repeated. `drafted[i]` are the probes with `lengths[i]` draft tokens, `plain[i]`
    the probes before them.
    """

    def __init__(
        self, inner: Drafter, lengths: Sequence[int], *, lanes: int, clock: Callable[[], float]
    ) -> None:
        self._inner, self._lengths, self._lanes, self._clock = inner, tuple(lengths), lanes, clock
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

    def bind(self, chooser: DraftSampler) -> None:
        self._inner.bind(chooser)

    def handles(self, request: Request) -> bool:
        return self._inner.handles(request)

    def admit(self, slot: int, request: Request) -> None:
        self._open = None  # the step included prefill
        self._inner.admit(slot, request)

    def release(self, slot: int) -> None:
        self._inner.release(slot)

    def propose(self, asks: Sequence[DraftAsk]) -> Sequence[Sequence[int]]:
        start = self._clock()
        self._close(start)
        length = self._lengths[self._turn // 2] if self._turn % 2 else 0
        limited = [replace(ask, most=min(length, ask.most)) for ask in asks]
        runs: Sequence[Sequence[int]] = self._inner.propose(limited) if length else [()] * len(asks)
        self._drafting = self._clock() - start if length else 0.0
        is_reading = bool(length) and self._inner.is_reading
        self._is_whole = not is_reading and all(ask.most >= length for ask in asks)
        self._seen = {ask.slot: (0, 0) for ask in asks}
        return runs

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        self._seen[slot] = proposed, accepted
        self._inner.observe(slot, proposed=proposed, accepted=accepted)

    def measure(self, step: Measured) -> None:
        self._inner.measure(step)
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

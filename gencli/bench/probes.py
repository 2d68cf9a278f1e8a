"""Steps with so many drafts and plain ones in turns, each timed: a drafter around another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter, Measured
from gencli.speculative.draft_sampler import DraftSampler

__all__ = ["Probe", "ProbingDrafter"]


@dataclass(frozen=True, slots=True)
class Probe:
    """A step of all texts: how many drafts each of them had, how many it kept, and seconds.

    `seconds` are those of the whole step, up to the next one, `draft_seconds` the part that drafting took.
    """

    drafts: tuple[int, ...]
    kept: tuple[int, ...]
    seconds: float
    draft_seconds: float


class ProbingDrafter(Drafter):
    """Asks another drafter for `lengths[0]` tokens, `lengths[1]`, ... in turn, a plain step before each.

    Counted are steps of `lanes` texts that read no prompt, had room for the drafts, and neither ended nor
    began a text; the others are repeated. `plain[i]` are the probes before those with `lengths[i]` drafts,
    `drafted[i]` these.
    """

    def __init__(
        self, inner: Drafter, lengths: Sequence[int], *, lanes: int, clock: Callable[[], float]
    ) -> None:
        self._inner, self._lengths, self._lanes, self._clock = inner, tuple(lengths), lanes, clock
        self.plain: list[list[Probe]] = [[] for _ in lengths]
        self.drafted: list[list[Probe]] = [[] for _ in lengths]
        self._turn = 0  # 2 i is the plain step before lengths[i], 2 i + 1 the one with drafts
        self._began, self._drafting, self._is_whole = 0.0, 0.0, False
        self._seen: dict[int, tuple[int, int]] = {}  # by slot: drafts, and how many stand
        self._open: Probe | None = None

    @property
    def rounds(self) -> int:
        """How often each of the lengths has been probed."""
        return len(self.drafted[-1])

    def bind(self, chooser: DraftSampler) -> None:
        """See Drafter."""
        self._inner.bind(chooser)

    def handles(self, request: Request) -> bool:
        """See Drafter."""
        return self._inner.handles(request)

    def admit(self, slot: int, request: Request) -> None:
        """The step between has read a prompt."""
        self._open = None
        self._inner.admit(slot, request)

    def release(self, slot: int) -> None:
        """See Drafter."""
        self._inner.release(slot)

    def propose(self, asks: Sequence[DraftAsk]) -> Sequence[Sequence[int]]:
        """See Drafter."""
        start = self._clock()
        self._close(start)
        length = self._lengths[self._turn // 2] if self._turn % 2 else 0
        wanted = [replace(ask, most=min(length, ask.most)) for ask in asks]
        runs: Sequence[Sequence[int]] = self._inner.propose(wanted) if length else [()] * len(asks)
        self._drafting = self._clock() - start if length else 0.0
        is_reading = bool(length) and self._inner.is_reading
        self._is_whole = not is_reading and all(ask.most >= length for ask in asks)
        self._seen = {ask.slot: (0, 0) for ask in asks}
        return runs

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        """See Drafter."""
        self._seen[slot] = proposed, accepted
        self._inner.observe(slot, proposed=proposed, accepted=accepted)

    def measure(self, step: Measured) -> None:
        """The step counts if nothing but decoding went on in it."""
        self._inner.measure(step)
        if self._is_whole and step.lanes == len(self._seen) == self._lanes:
            drafts, kept = zip(*self._seen.values(), strict=True)
            self._open = Probe(drafts, kept, 0.0, self._drafting)
        self._is_whole = False

    def _close(self, now: float) -> None:
        """The step before this one is over."""
        if self._open is not None:
            probes = self.drafted if self._turn % 2 else self.plain
            probes[self._turn // 2].append(replace(self._open, seconds=now - self._began))
            self._turn = (self._turn + 1) % (2 * len(self._lengths))
        self._open, self._began = None, now

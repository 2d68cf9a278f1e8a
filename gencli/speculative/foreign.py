"""A guard around plugin drafters: a faulty drafter loses its drafts, and the run goes on."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from gencli.core.request import Request
from gencli.errors import PluginError
from gencli.speculative.base import DraftAsk, Drafter, Drawn, Measured
from gencli.speculative.draft_sampler import DraftSampler
from processors.foreign import WrongResult, fault_text, is_interrupt
from processors.machine_faults import device_fault

__all__ = ["ForeignDrafter"]

T = TypeVar("T")


class ForeignDrafter(Drafter):
    """Wraps a plugin's drafter. Its first fault is added to the notices and switches the drafter off.

    Without its drafts the texts stay the same; under `rejection` their distribution stays the same.
    """

    def __init__(self, drafter: type[Drafter]) -> None:
        """Make the plugin's drafter. Raises PluginError if its constructor fails."""
        self._name = drafter.name
        try:
            self._inner = drafter()
            self.is_autoregressive = bool(self._inner.is_autoregressive)
            self.notices = tuple(map(str, self._inner.notices))
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise PluginError(
                f"The drafter {drafter.name} is wrong: {fault_text('__init__', error)}."
            ) from error
        self._is_off = False
        self._told: list[str] = []
        self._width, self._device = 0, torch.device("cpu")

    @property
    def is_reading(self) -> bool:  # type: ignore[override]
        return self._call("is_reading", lambda: bool(self._inner.is_reading), False)

    def bind(self, chooser: DraftSampler) -> None:
        """Bind the drafter; its faults go to the engine's notices."""
        self._told, self._width, self._device = chooser.notices, chooser.width, chooser.device
        self._call("bind", lambda: self._inner.bind(chooser), None)

    def handles(self, request: Request) -> bool:
        """Whether the drafter handles the request. After a fault: always, so that slots stay consistent."""
        return self._call("handles", lambda: bool(self._inner.handles(request)), True)

    def is_autoregressive_for(self, request: Request) -> bool:
        return self._call(
            "is_autoregressive_for", lambda: bool(self._inner.is_autoregressive_for(request)), False
        )

    def admit(self, slot: int, request: Request) -> None:
        self._call("admit", lambda: self._inner.admit(slot, request), None)

    def propose(self, asks: Sequence[DraftAsk]) -> Sequence[Sequence[int]]:
        none: Sequence[Sequence[int]] = [()] * len(asks)
        return self._call("propose", lambda: self._checked(self._inner.propose(asks), asks), none)

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        self._call("observe", lambda: self._inner.observe(slot, proposed=proposed, accepted=accepted), None)

    def measure(self, step: Measured) -> None:
        self._call("measure", lambda: self._inner.measure(step), None)

    def release(self, slot: int) -> None:
        self._call("release", lambda: self._inner.release(slot), None)

    def trim(self) -> None:
        self._call("trim", self._inner.trim, None)

    def _call(self, hook: str, call: Callable[[], T], otherwise: T) -> T:
        if self._is_off:
            return otherwise
        try:
            return call()
        except BaseException as error:
            if is_interrupt(error) or device_fault(error):
                raise
            self._is_off = True
            self._told.append(
                f"The drafter {self._name} is wrong: {fault_text(hook, error)}. "
                "The run goes on without its drafts."
            )
            return otherwise

    def _checked(self, runs: object, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        is_list = isinstance(runs, Sequence) and not isinstance(runs, str | bytes)
        if not is_list or len(runs) != len(asks):  # type: ignore[arg-type]
            raise WrongResult(f"propose returned {runs!r:.60}, a list of {len(asks)} lists of ids expected")
        return [self._run(run, ask.most) for run, ask in zip(runs, asks, strict=True)]  # type: ignore[call-overload]

    def _run(self, run: object, most: int) -> Sequence[int]:
        if run is None:
            return ()
        try:
            ids = tuple(map(operator.index, run[:most] if isinstance(run, Sequence) else ("",)))
        except TypeError:
            ids = (-1,)
        if not all(0 <= token < self._width for token in ids):
            raise WrongResult(f"propose returned {run!r:.60}, a list of ids below {self._width} expected")
        return self._drawn(run) if isinstance(run, Drawn) else ids

    def _drawn(self, run: Drawn) -> Drawn:
        def is_distribution(row: object) -> bool:
            if not isinstance(row, Tensor) or row.shape != (self._width,) or row.device != self._device:
                return False
            return row.dtype == torch.float32 and -torch.inf < float(row.amax()) < torch.inf

        sizes = {len(run.tokens), len(run.logits), len(run.probabilities)}
        if len(sizes) > 1 or not all(map(is_distribution, run.logits)):
            raise WrongResult(
                "propose returned Drawn with wrong logits, "
                f"for each token finite ones [{self._width}] float32 on {self._device} expected"
            )
        if not all(isinstance(one, float) and 0 < one <= 1 for one in run.probabilities):
            raise WrongResult("propose returned Drawn with wrong probabilities, above 0 and up to 1 expected")
        return run

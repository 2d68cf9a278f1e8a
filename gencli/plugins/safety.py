"""Whether a plugin may be given drafts. Its author is not asked: the contract kit is."""

from __future__ import annotations

from collections.abc import Iterator

from processors.chain import Chain
from processors.errors import ParamError
from processors.params import Params
from processors.registry import Registry
from processors.testing import Subject, examples, run_check
from processors.testing.checks import drafts_equal_steps

__all__ = ["DraftGuard", "draft_fault"]


def draft_fault(registry: Registry, name: str, params: Params) -> str:
    """What goes wrong when the stage sees drafts, with these values or others; "" if nothing does."""
    stage = registry.load(name)
    try:
        guessed = examples(stage.Params)
    except ParamError:
        guessed = ()
    return run_check(drafts_equal_steps, Subject(stage, (params, *guessed))).detail


class DraftGuard:
    """Checks each plugin once for the values that a run gives it. Built-in stages are known to be safe."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._checked: set[tuple[str, Params]] = set()
        self._failed: set[str] = set()

    def faults(self, chain: Chain) -> Iterator[tuple[str, str]]:
        """Yield the stages of the chain that fail with drafts and were not named before, and how."""
        for name, params in chain:
            is_known = (name, params) in self._checked or name in self._failed
            if is_known or self._registry.is_builtin(name):
                continue
            self._checked.add((name, params))
            fault = draft_fault(self._registry, name, params)
            if fault:
                self._failed.add(name)
                yield name, fault

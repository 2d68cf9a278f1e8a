"""Check with the contract kit whether a plugin stage works with draft tokens."""

from __future__ import annotations

from collections.abc import Iterator

from processors.chain import Chain
from processors.errors import ParamError
from processors.params import Params
from processors.registry import Registry

__all__ = ["DraftGuard", "draft_fault"]


def draft_fault(registry: Registry, name: str, params: Params) -> str:
    """Return the contract check that fails if the stage sees draft tokens, with these or example values.

    "" if none fails.
    """
    from processors.testing import Subject, examples, run_check  # only plugin stages need the kit
    from processors.testing.checks import drafts_equal_steps

    stage = registry.load(name)
    try:
        others = examples(stage.Params)
    except ParamError:
        others = ()
    return run_check(drafts_equal_steps, Subject(stage, (params, *others))).detail


class DraftGuard:
    """Checks each plugin stage once per set of values. Built-in stages need no check."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._checked: set[tuple[str, Params]] = set()
        self._failed: set[str] = set()

    def faults(self, chain: Chain) -> Iterator[tuple[str, str]]:
        """Yield name and fault of each stage of the chain that fails with drafts; each stage once."""
        for name, params in chain:
            is_known = (name, params) in self._checked or name in self._failed
            if is_known or self._registry.is_builtin(name):
                continue
            self._checked.add((name, params))
            fault = draft_fault(self._registry, name, params)
            if fault:
                self._failed.add(name)
                yield name, fault

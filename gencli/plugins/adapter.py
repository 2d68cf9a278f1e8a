"""Adapt transformers' LogitsProcessor classes, and callables (ids, logits) -> logits, as stages."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gencli.errors import PluginError
from gencli.plugins.values import AdapterParams, params_of
from processors.base import Admission, Processor
from processors.catalog import Phase
from processors.foreign import checked_logits
from processors.rows import Rows

__all__ = ["Adapter", "adapt", "stage_name"]

_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Adapter(Processor[AdapterParams]):
    """Calls the adapted callable once for each row, with ids [1, L] and logits [1, V] of the row.

    Each slot has its own instance, so that the instance's state belongs to one request.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._calls: dict[int, Callable[[Tensor, Tensor], Tensor]] = {}

    def admit(self, slot: int, params: AdapterParams, request: Admission) -> None:
        self._calls[slot] = params.build()

    def release(self, slot: int) -> None:
        self._calls.pop(slot, None)

    def fork(self, source: int, target: int) -> None:
        self._calls[target] = copy.deepcopy(self._calls[source])

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return processed logits [A, V]. The callable gets the ids of prompt, output and visible drafts."""
        seen = rows.visible()
        out = [
            self._row(slot, seen.ids[row, seen.valid[row]][None], logits[row : row + 1])
            for row, slot in enumerate(rows.host_slots)
        ]
        return torch.cat(out)

    def _row(self, slot: int, ids: Tensor, logits: Tensor) -> Tensor:
        return checked_logits(self._calls[slot](ids, logits), logits)


def adapt(target: Callable[..., Any], name: str, source: str) -> type[Adapter]:
    """Return a stage class for a target: a class, a function, or a callable object, which is copied.

    Raises PluginError for a target with too few arguments or without a signature.
    """
    if isinstance(target, type):
        make: Callable[..., Any] = target
        parameters = _parameters(target, source)
    else:
        call, others = target, _parameters(target, source)
        if len(others) < 2:
            raise PluginError(f"The plugin {source} takes {len(others)} arguments, not (ids, logits).")
        parameters = others[2:]
        make = functools.partial(_made, call)
    fields = [entry for entry in parameters if entry.kind in _KEYWORDS]
    is_warper = getattr(target, "__name__", "").endswith("Warper")
    params = params_of(make, fields, owner=target, name=name, source=source)
    return type(
        name.title().replace("_", ""),
        (Adapter,),
        {
            "name": name,
            "phase": Phase.TRUNCATE if is_warper else Phase.ADJUST,
            "Params": params,
            "__module__": getattr(target, "__module__", __name__),
            "__doc__": inspect.getdoc(target) or f"Adapted from {source}.",
        },
    )


def stage_name(attribute: str) -> str:
    """Return a class name in snake case: RepetitionPenaltyLogitsProcessor becomes repetition_penalty."""
    stem = re.sub("(LogitsProcessor|LogitsWarper|Warper|Processor)$", "", attribute) or attribute
    words = re.sub("([a-z0-9])([A-Z])", r"\1_\2", stem)
    return re.sub("([A-Z]+)([A-Z][a-z])", r"\1_\2", words).lower().lstrip("_")


def _made(call: Callable[..., Any], **values: Any) -> Callable[..., Any]:
    own = call if inspect.isfunction(call) else copy.deepcopy(call)
    return functools.partial(own, **values)


def _parameters(target: Callable[..., Any], source: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        raise PluginError(f"The plugin {source} has no readable signature.") from None

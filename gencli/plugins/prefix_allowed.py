"""`prefix_allowed`: a stage that calls a Python function for the tokens that may come next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from processors.base import Admission, Env, Processor
from processors.catalog import Phase
from processors.foreign_stages import WrongResult
from processors.params import Params, param
from processors.rows import Rows

__all__ = ["AllowedNext", "prefix_allowed"]

AllowedNext = Callable[[list[int]], Iterable[int] | None]  # returns the ids that may follow the output's ids


@dataclass(frozen=True, slots=True)
class _Params(Params):
    enabled: bool = param(False, "Ask the function; naming the stage sets it.")


class _PrefixAllowed(Processor[_Params]):
    """Mask the ids that the function does not return. It sees committed output and visible drafts."""

    phase = Phase.CONSTRAIN
    Params = _Params
    function: AllowedNext

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._outputs: dict[int, list[int]] = {}

    def admit(self, slot: int, params: _Params, request: Admission) -> None:
        super().admit(slot, params, request)
        self._outputs[slot] = []

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        self._outputs[slot] += tokens

    def release(self, slot: int) -> None:
        self._outputs.pop(slot, None)

    def fork(self, source: int, target: int) -> None:
        super().fork(source, target)
        self._outputs[target] = [*self._outputs[source]]

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. One call of the function for each row."""
        is_allowed = torch.zeros(logits.shape, dtype=torch.bool)
        for row, (slot, drafts) in enumerate(zip(rows.host_slots, rows.host_drafts, strict=True)):
            allowed = type(self).function([*self._outputs[slot], *drafts])
            is_allowed[row, slice(None) if allowed is None else self._checked(allowed)] = True
        return logits.masked_fill_(~is_allowed.to(logits.device), -torch.inf)

    def _checked(self, allowed: Iterable[int]) -> list[int]:
        ids = list(allowed)
        for token in ids:
            if type(token) is not int or token < 0:
                raise WrongResult(f"the function returned {repr(token)[:40]}, but has to return token ids")
        return [token for token in ids if token < self.env.vocab_size]


def prefix_allowed(function: AllowedNext, name: str = "prefix_allowed") -> type[Processor[Any]]:
    """Return a stage class that allows the ids `function(output_ids)` names, as in transformers'
    prefix_allowed_tokens_fn.

    It is given to `LLM(plugins=[...])` and switched on by its name: `stages={"prefix_allowed": True}`. None
    allows all ids; where no id is left, the text fails (EmptySupport). Ids that the model lacks cannot come
    next. The function has to give the same answer to the same ids: it is asked again for drafts. It runs
    behind the guard of plug-ins, so that an exception fails its text alone. Presets and requests can name
    the stage, never bring a function.
    """
    return type("PrefixAllowed", (_PrefixAllowed,), {"name": name, "function": staticmethod(function)})

"""Which entries of a chain act in a row: at most one for each stage, chosen by conditions."""

from __future__ import annotations

from collections.abc import Sequence

from processors.catalog import Phase
from processors.chain import Chain, Stage
from processors.conditions.when import NO_CONDITION, When
from processors.errors import ChainError
from processors.registry import Registry, twice

__all__ = ["Key", "Picks", "check_conditions"]

_MOST = 256
Key = tuple[str, int]  # a stage's name and the index of its entry; each entry has an instance of its own


def check_conditions(chain: Chain, registry: Registry) -> None:
    """Raise ChainError for a condition that a stage does not support, and for a repeated stage.

    A stage may have several adjacent entries if no two of them have the same condition.
    """
    if len({name for name, _ in chain}) == len(chain.stages) and not chain.is_conditional:
        return
    if len({params.when for _, params in chain}) > _MOST:
        raise ChainError(f"The chain has more than {_MOST} different conditions.")
    seen, last = set[tuple[str, When | None]](), ""
    for name, params in chain:
        if params.when is not None and name in NO_CONDITION:
            raise ChainError(
                f"The stage {name} takes no condition (when): {NO_CONDITION[name]}. Leave it out.",
                stages=(name,),
            )
        if (name, params.when) in seen:
            raise twice(name, "chain", registry)
        if name != last and any(name == other for other, _ in seen):
            raise ChainError(
                f"The stage {name} stands in two places of the chain. Put all its entries side by side.",
                stages=(name,),
            )
        seen.add((name, params.when))
        last = name


class Picks:
    """The entries of a chain, and which of them act, given which conditions hold.

    Of the entries of a stage whose conditions hold, the last acts; if none holds, the entry without a
    condition acts, if there is one. If that leads to a temperature of 0, stages of the phases SCALE, TRUNCATE
    and GATE are left out, as in a greedy chain.
    """

    def __init__(self, chain: Chain, registry: Registry) -> None:
        self.stages: dict[Key, Stage] = {}
        self._groups: dict[str, list[tuple[int, Key]]] = {}  # by stage: pairs (index of the condition, entry)
        entries = chain.active().stages
        self.whens = tuple(dict.fromkeys(params.when for _, params in entries if params.when is not None))
        self._is_late = {name: registry.phase(name) > Phase.ADJUST for name, _ in entries}
        for name, params in sorted(entries, key=lambda entry: entry[1].when is not None):
            group = self._groups.setdefault(name, [])
            key = (name, len(group))
            group.append((-1 if params.when is None else self.whens.index(params.when), key))
            self.stages[key] = (name, params)
        self.order = tuple(dict.fromkeys(name for name, _ in entries))
        self.keys = tuple(key for key, (_, params) in self.stages.items() if not params.is_off())
        self._known: dict[tuple[bool, ...], tuple[Key, ...]] = {}

    def where(self, hold: Sequence[bool]) -> tuple[Key, ...]:
        """Return the entries that act if these conditions hold; `hold` has one flag for each of `whens`."""
        found = self._known.get(flags := tuple(hold))
        if found is None:
            found = self._known[flags] = tuple(self._picked(flags))
        return found

    def left_out(self, hold: Sequence[bool]) -> tuple[tuple[int, Stage, str], ...]:
        """Return the stages left out if these conditions hold, with a reason of a few words each.

        The number of a stage counts the acting stages before it.
        """
        acting, count = {name for name, _ in self.where(hold)}, 0
        found = list[tuple[int, Stage, str]]()
        for name in self.order:
            there = [key for _, key in self._groups[name] if key in self.keys]
            if name in acting:
                count += 1
            elif there:
                whens = [self.stages[key][1].when for key in there]
                stated = " or ".join(str(when) for when in whens if when is not None)
                is_met = any(number < 0 or hold[number] for number, _ in self._groups[name])
                reason = "the draw is greedy here" if is_met else f"condition not met: {stated}"
                found.append((count, self.stages[there[0]], reason))
        return tuple(found)

    def _picked(self, flags: tuple[bool, ...]) -> list[Key]:
        found = list[Key]()
        for name in self.order:
            there = [key for number, key in self._groups[name] if number < 0 or flags[number]]
            if there and not self.stages[there[-1]][1].is_off():
                found.append(there[-1])
        if not any(_is_greedy(self.stages[key]) for key in found):
            return found
        return [key for key in found if _is_greedy(self.stages[key]) or not self._is_late[key[0]]]


def _is_greedy(stage: Stage) -> bool:
    return stage[0] == "temperature" and getattr(stage[1], "temperature", 1.0) == 0

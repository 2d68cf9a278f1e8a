"""The order of a chain's stages: reorder it, refuse unsound orders, warn of doubtful ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from processors.catalog import Phase
from processors.chain import Chain
from processors.errors import ChainError, nearest
from processors.registry import Registry, builtin_registry, twice

__all__ = ["GROUPS", "check_order", "doubts", "expand", "reorder", "temperature_last"]

GROUPS = {"penalties": ("repetition", "frequency", "presence")}


def expand(names: Sequence[str], registry: Registry | None = None) -> tuple[str, ...]:
    """Return stage names, with groups (penalties) and phases (truncate) replaced by their stages.

    ChainError for an unknown name and for a stage that is named twice.
    """
    registry = registry or builtin_registry()
    phases = {phase.name.lower(): phase for phase in Phase}
    found: list[str] = []
    for name in names:
        if name in phases:
            stages: Sequence[str] = [n for n in registry.names() if registry.phase(n) == phases[name]]
        else:
            stages = GROUPS.get(name, (name,))
        for stage in stages:
            if stage not in registry:
                known = [*registry.names(), *GROUPS, *phases]
                raise ChainError(f"There is no stage {stage!r} to order. {nearest(stage, known)}")
            if stage in found:
                raise twice(stage, "order", registry)
            found.append(stage)
    return tuple(found)


def reorder(chain: Chain, names: Sequence[str], registry: Registry | None = None) -> Chain:
    """Return the chain in the order of `names`; names of stages that it lacks are ignored.

    CONSTRAIN stages that are not named run first. Any other stage of the chain that is not named is a
    ChainError.
    """
    registry = registry or builtin_registry()
    order = expand(names, registry)
    names_of = dict.fromkeys(name for name, _ in chain)
    masks = [n for n in names_of if n not in order and registry.phase(n) == Phase.CONSTRAIN]
    left_out = [n for n in names_of if n not in order and n not in masks]
    if left_out:
        text = f"The order leaves out {', '.join(left_out)}, which would run. Name it too."
        raise ChainError(text, stages=tuple(left_out))
    places = {name: place for place, name in enumerate((*masks, *order))}
    return Chain(tuple(sorted(chain.stages, key=lambda stage: places[stage[0]])))


def temperature_last(chain: Chain, registry: Registry | None = None) -> Chain:
    """Return the chain with its SCALE stages last, as llama.cpp, mlx-lm and koboldcpp order it."""
    phase = (registry or builtin_registry()).phase
    scaling = tuple(stage for stage in chain.stages if phase(stage[0]) == Phase.SCALE)
    return Chain((*(stage for stage in chain.stages if stage not in scaling), *scaling))


def check_order(chain: Chain, registry: Registry | None = None) -> None:
    """Raise ChainError if a TRUNCATE stage runs before a CONSTRAIN stage, which could mask all it kept."""
    phase = (registry or builtin_registry()).phase
    for before, after in _pairs(chain.active()):
        if phase(before) >= Phase.TRUNCATE and phase(after) == Phase.CONSTRAIN:
            raise ChainError(
                f"{before} runs before {after}: it would keep tokens that {after} then masks, and perhaps "
                f"no other. Put {after} first.",
                stages=(before, after),
            )


def doubts(chain: Chain, registry: Registry | None = None) -> Iterator[str]:
    """Yield warnings of orders that are sound but unusual: ADJUST after TRUNCATE."""
    phase = (registry or builtin_registry()).phase
    for before, after in _pairs(chain.active()):
        if phase(before) >= Phase.TRUNCATE and phase(after) == Phase.ADJUST:
            yield f"{after} runs after {before}: it changes only tokens that {before} has left."


def _pairs(chain: Chain) -> Iterator[tuple[str, str]]:
    names = list(dict.fromkeys(name for name, _ in chain))
    return ((before, after) for i, before in enumerate(names) for after in names[i + 1 :])

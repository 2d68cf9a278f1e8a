"""In which order the stages of a chain run: what a person may ask for, what is unsound, what is doubtful."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from processors.catalog import Phase
from processors.chain import Chain
from processors.errors import ChainError, nearest
from processors.registry import Registry, builtin_registry, twice

__all__ = ["GROUPS", "check_order", "doubts", "expand", "reorder", "temperature_last"]

GROUPS = {"penalties": ("repetition", "frequency", "presence")}


def expand(names: Sequence[str], registry: Registry | None = None) -> tuple[str, ...]:
    """Stage names for a list in which a group (penalties) or a phase (truncate) stands for its stages.

    ChainError for a name that is neither, and for a stage that is named twice.
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
    """The chain in another order. Names of stages that it lacks do nothing.

    Masks that are not named run first: their place is free among themselves, but not after a cut. Any
    other stage of the chain that is not named is a ChainError.
    """
    registry = registry or builtin_registry()
    order = expand(names, registry)
    stages = dict(chain.stages)
    masks = [n for n in stages if n not in order and registry.phase(n) == Phase.CONSTRAIN]
    left_out = [n for n in stages if n not in order and n not in masks]
    if left_out:
        text = f"The order leaves out {', '.join(left_out)}, which would run. Name it too."
        raise ChainError(text, stages=tuple(left_out))
    return Chain(tuple((name, stages[name]) for name in (*masks, *order) if name in stages))


def temperature_last(chain: Chain, registry: Registry | None = None) -> Chain:
    """The chain with its scaling stages just before the draw, as llama.cpp, mlx-lm and koboldcpp have it."""
    phase = (registry or builtin_registry()).phase
    scaling = tuple(stage for stage in chain.stages if phase(stage[0]) == Phase.SCALE)
    return Chain((*(stage for stage in chain.stages if stage not in scaling), *scaling))


def check_order(chain: Chain, registry: Registry | None = None) -> None:
    """Refuse a cut before a mask: the cut would keep tokens that the mask then takes away."""
    phase = (registry or builtin_registry()).phase
    for before, after in _pairs(chain.active()):
        if phase(before) >= Phase.TRUNCATE and phase(after) == Phase.CONSTRAIN:
            raise ChainError(
                f"{before} runs before {after}: it would keep tokens that {after} then masks, and perhaps "
                f"no other. Put {after} first.",
                stages=(before, after),
            )


def doubts(chain: Chain, registry: Registry | None = None) -> Iterator[str]:
    """Sentences on what is sound and yet seldom meant: an adjustment behind a cut."""
    phase = (registry or builtin_registry()).phase
    for before, after in _pairs(chain.active()):
        if phase(before) >= Phase.TRUNCATE and phase(after) == Phase.ADJUST:
            yield f"{after} runs after {before}: it changes only tokens that {before} has left."


def _pairs(chain: Chain) -> Iterator[tuple[str, str]]:
    names = [name for name, _ in chain]
    return ((before, after) for i, before in enumerate(names) for after in names[i + 1 :])

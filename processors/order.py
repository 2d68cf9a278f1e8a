"""The order of a chain's stages: reorder it, reject invalid orders, warn of unusual ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from processors.catalog import Phase
from processors.catalog.scale import DynamicTemperatureParams
from processors.chain import Chain
from processors.errors import ChainError, Contradiction, nearest
from processors.registry import Registry, builtin_registry, twice

__all__ = ["GROUPS", "check_order", "check_together", "doubts", "expand", "reorder", "temperature_last"]

_FOLLOWING = ("mirostat", "adaptive_p")
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


def reorder(
    chain: Chain, names: Sequence[str], registry: Registry | None = None, *, is_open: bool = False
) -> Chain:
    """Return the chain in the order of `names`; names of stages that it lacks are ignored.

    CONSTRAIN stages that are not named run first. Any other active stage that is not named is a ChainError;
    with `is_open` it is inserted right after the stages that precede it in the default order.
    """
    registry = registry or builtin_registry()
    order = expand(names, registry)
    names_of = dict.fromkeys(name for name, _ in chain)
    on = {name for name, params in chain if not params.is_off()}
    masks = [n for n in names_of if n not in order and registry.phase(n) == Phase.CONSTRAIN]
    left_out = [n for n in names_of if n not in order and n not in masks]
    would_run = [name for name in left_out if name in on]
    if would_run and not is_open:
        text = f"The order leaves out {', '.join(would_run)}, which would run. Name it too."
        raise ChainError(text, stages=tuple(would_run))
    order = _completed(order, left_out, registry)
    places = {name: place for place, name in enumerate((*masks, *order))}
    return Chain(tuple(sorted(chain.stages, key=lambda stage: places[stage[0]])))


def _completed(order: Sequence[str], left_out: Sequence[str], registry: Registry) -> tuple[str, ...]:
    """Return `order` with the stages of `left_out` inserted, each after those that precede it by default."""
    default, found = registry.names(), list(order)
    for stage in sorted(left_out, key=default.index):
        found.insert(registry.place(found, stage), stage)
    return tuple(found)


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


def check_together(chain: Chain, registry: Registry | None = None) -> None:
    """Raise ChainError for stages that exclude each other, Contradiction if keeping one of them solves it.

    `chain` is resolved.

    Mirostat allows no other truncation. Mirostat and adaptive_p use the probability of the drawn token, so no
    later stage may scale or truncate. A chain has at most one stage that sets the temperature.
    """
    phase = (registry or builtin_registry()).phase
    active = chain.active()
    names = [name for name, _ in active]
    _check_temperatures(active)
    if "mirostat" in names:
        for name in names:
            if phase(name) == Phase.TRUNCATE:
                raise Contradiction("mirostat", name, "mirostat alone decides how many tokens are left")
        if "adaptive_p" in names:
            raise Contradiction("mirostat", "adaptive_p", "both steer the probability of what is drawn")
    for before, after in _pairs(active):
        if before in _FOLLOWING and phase(after) in (Phase.SCALE, Phase.TRUNCATE):
            raise ChainError(
                f"{before} runs before {after}, which would change the probabilities that {before} looks at. "
                f"Put {after} first.",
                stages=(before, after),
            )


def _check_temperatures(chain: Chain) -> None:
    """Raise ChainError for two stages that set the temperature, or one with only part of its bounds."""
    dynamic, edt = chain.get("dynamic_temperature"), chain.get("edt")
    if isinstance(dynamic, DynamicTemperatureParams):
        _check_bounds(dynamic)
    if dynamic is not None and edt is not None:
        raise Contradiction("dynamic_temperature", "edt", "each sets the temperature of a step")
    if chain.get("temperature") is None:  # relative values were merged with the temperature already
        return
    if dynamic is not None:
        why = "min and max of dynamic_temperature are two more"
        raise Contradiction("temperature", "dynamic_temperature", why)
    if edt is not None:
        raise Contradiction("temperature", "edt", "t0 of edt is one too")


def _check_bounds(params: DynamicTemperatureParams) -> None:
    name, low, high = "dynamic_temperature", params.min, params.max
    if params.range and (low is not None or high is not None):
        text = f"{name} has a range around the temperature and also min or max. Leave out one of the two."
    elif not params.is_relative and (low is None or high is None):
        given, missing = ("max", "min") if low is None else ("min", "max")
        text = f"{name} has a {given}, but no {missing}. Give both, or a range around the temperature."
    elif low is not None and high is not None and low > high:
        text = f"{name} has a min of {low}, which is above its max of {high}. Exchange them."
    else:
        return
    raise ChainError(text, stages=(name,))


def doubts(chain: Chain, registry: Registry | None = None) -> Iterator[str]:
    """Yield warnings of valid but unusual chains: ADJUST after TRUNCATE, adaptive_p alone."""
    phase = (registry or builtin_registry()).phase
    for before, after in _pairs(chain.active()):
        if phase(before) >= Phase.TRUNCATE and phase(after) == Phase.ADJUST:
            yield f"{after} runs after {before}: it changes only tokens that {before} has left."
    names = [name for name, _ in chain.active()]
    if "adaptive_p" in names and not any(phase(name) == Phase.TRUNCATE for name in names):
        yield "adaptive_p lifts unlikely tokens, and nothing truncates before it. Add min_p, for example."


def _pairs(chain: Chain) -> Iterator[tuple[str, str]]:
    names = list(dict.fromkeys(name for name, _ in chain))
    return ((before, after) for i, before in enumerate(names) for after in names[i + 1 :])

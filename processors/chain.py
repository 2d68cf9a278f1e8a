"""`Chain`: the ordered stages of a request and their parameters, as one hashable value; the order of its
stages; and which of its entries act in a row. Imports no torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeGuard

from processors.errors import ChainError, Contradiction, nearest
from processors.params import Params, Phase
from processors.registry import Registry, builtin_registry, twice
from processors.request_values import NO_CONDITION, Draw, When
from processors.stages.scale import DynamicTemperatureParams, TemperatureParams, VaryingParams

# Numbers such as .5 and +5, which JSON lacks.
_NUMBER = re.compile(r"[+-]?(\d{1,40}\.?|\d{0,40}\.\d{1,40})([eE][+-]?\d{1,3})?")

Stage = tuple[str, Params]
_REPR_LENGTH = 200  # most characters of a chain in its repr


@dataclass(frozen=True, slots=True)
class Chain:
    """Stages with their parameters, in the order in which they run.

    A stage may have several entries, each with another condition (`when`), and one without. Of the entries
    whose condition holds, the last acts; if none holds, the entry without a condition acts.
    """

    stages: tuple[Stage, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any], registry: Registry | None = None) -> Chain:
        """Build from {stage: value} in default order; a value is the main parameter or a mapping."""
        registry = registry or builtin_registry()
        return cls.ordered([_stage(name, value, registry) for name, value in values.items()], registry)

    @classmethod
    def ordered(cls, stages: Iterable[Stage], registry: Registry | None = None) -> Chain:
        """Build from stages in any order, put into default order.

        Among the entries of one stage the one without a condition comes first; the others keep their order.
        """
        names = (registry or builtin_registry()).names()
        return cls(
            tuple(sorted(stages, key=lambda stage: (names.index(stage[0]), stage[1].when is not None)))
        )

    @classmethod
    def from_list(cls, items: Iterable[Mapping[str, Any]], registry: Registry | None = None) -> Chain:
        """Build from `[{"top_k": {"k": 40}}, {"top_p": 0.9}]`, in the order given."""
        registry = registry or builtin_registry()
        pairs = [pair for item in items for pair in item.items()]
        return cls(tuple(_stage(name, value, registry) for name, value in pairs))

    @classmethod
    def parse(cls, text: str, registry: Registry | None = None) -> Chain:
        """Build from text; the inverse of `str`."""
        items = [item for item in _split(text, "|") if item.strip()]
        return cls(tuple(parse_stage(item, registry) for item in items))

    def to_list(self) -> list[dict[str, dict[str, Any]]]:
        """Return each stage with the parameters that differ from its defaults; the inverse of `from_list`."""
        return [{name: params.to_mapping()} for name, params in self.stages]

    def with_stage(self, name: str, registry: Registry | None = None, **values: Any) -> Chain:
        """Return a copy with these parameters set; a new stage is inserted at its default position.

        Entries of the stage with a condition stay as they are.
        """
        registry = registry or builtin_registry()
        if self.get(name) is not None:
            changed = ((n, p.replace(**values) if n == name and not p.when else p) for n, p in self.stages)
            return Chain(tuple(changed))
        return self.inserted(_stage(name, values, registry), registry)

    def inserted(self, stage: Stage, registry: Registry) -> Chain:
        """Return a copy with one more stage, at its default position."""
        at = registry.place([name for name, _ in self.stages], stage[0])
        return Chain((*self.stages[:at], stage, *self.stages[at:]))

    def get(self, name: str) -> Params | None:
        """Return the parameters of a stage without a condition, or None if the chain does not have it."""
        return next((p for stage, p in self.stages if stage == name and p.when is None), None)

    def active(self) -> Chain:
        """Return the chain without entries that are off, unless one switches another entry of its stage off.

        A temperature beside a stage that varies the temperature (VaryingParams) is merged into that stage:
        its relative values become absolute ones around the temperature.
        """
        names = {name for name, params in self.stages if not params.is_off()}
        on = tuple((n, p) for n, p in self.stages if not p.is_off() or (p.when and n in names))
        heats = (p.temperature for _, p in on if isinstance(p, TemperatureParams) and p.when is None)
        if not (heat := next(heats, None)) or not any(_is_relative(params) for _, params in on):
            return Chain(on)
        others = [(n, p) for n, p in on if n != "temperature" or p.when is not None]
        return Chain(tuple((n, p.around(heat) if _is_relative(p) else p) for n, p in others))

    @property
    def is_conditional(self) -> bool:
        """Whether any stage has a condition."""
        return any(params.when is not None for _, params in self.stages)

    @property
    def is_greedy(self) -> bool:
        """Whether the chain always asks for the most likely token (temperature 0)."""
        values = {p.when: getattr(p, "temperature", 1.0) for n, p in self.stages if n == "temperature"}
        return values.get(None) == 0 and not any(values.values())

    def resolved(self, draw: Draw = "gumbel", registry: Registry | None = None) -> tuple[Chain, Draw]:
        """Return the stages that run and the draw that they run with.

        Stages that are off are left out. A temperature of 0 makes any draw greedy. A greedy draw keeps the
        CONSTRAIN and ADJUST stages only, as HF and vLLM do: the others cannot change the most likely token.
        """
        active = self.active()
        if draw != "greedy" and not self.is_greedy:
            return active, draw
        phase = (registry or builtin_registry()).phase
        return Chain(tuple(stage for stage in active.stages if phase(stage[0]) <= Phase.ADJUST)), "greedy"

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __repr__(self) -> str:
        text = str(self)
        return f"Chain({text if len(text) <= _REPR_LENGTH else f'{text[: _REPR_LENGTH - 3]}...'!r})"

    def _repr_html_(self) -> str:
        cells = ((name, _shown(name, params).removeprefix(name)[1:]) for name, params in self.stages)
        rows = "".join(
            f"<tr><td>{number}</td><td>{_escaped(name)}</td><td>{_escaped(value)}</td></tr>"
            for number, (name, value) in enumerate(cells, start=1)
        )
        head = "<tr><th></th><th>stage</th><th>value</th></tr>"
        return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"

    def __str__(self) -> str:
        return " | ".join(_shown(name, params) for name, params in self.stages)


def _escaped(text: str) -> str:
    # On one line, with control and format characters by their code.
    return escape("".join(char if char.isprintable() else repr(char)[1:-1] for char in text))


def _is_relative(params: Params) -> TypeGuard[VaryingParams]:
    return isinstance(params, VaryingParams) and params.is_relative


def parse_stage(text: str, registry: Registry | None = None) -> Stage:
    """Parse one stage from `name`, `name=value` or `name:key=value,key=value`."""
    registry = registry or builtin_registry()
    name, values = parse_fields(text, registry)
    return _stage(name, values, registry)


def parse_fields(text: str, registry: Registry | None = None) -> tuple[str, dict[str, Any]]:
    """Parse one stage into its name and the fields that the text sets, without building Params."""
    head, colon, fields = text.strip().partition(":")
    name, equals, value = head.partition("=")
    registry = registry or builtin_registry()
    if equals:
        return name.strip(), fields_of(name.strip(), _value(value + colon + fields), registry)
    pairs = [_pair(item, text) for item in _split(fields, ",")] if colon else []
    return name.strip(), fields_of(name.strip(), dict(pairs), registry)


def _stage(name: str, value: Any, registry: Registry) -> Stage:
    return name, registry.spec(name).params.from_mapping(fields_of(name, value, registry), stage=name)


def fields_of(name: str, value: Any, registry: Registry) -> dict[str, Any]:
    """Return the fields that a stage's value sets: those of a mapping, or the main field."""
    params = registry.spec(name).params
    main = params.main()
    if not isinstance(value, Mapping):
        return {main: value}
    # A mapping may also be a main value (bias: {42: 1.5}). It sets fields if all keys are field names, or if
    # the main value cannot be a mapping: then an unknown key gets a "did you mean".
    takes_mapping = params.default(main) == () and main not in value
    names = {field.name for field in params.own_fields()}
    return dict(value) if not takes_mapping or not value or set(value) <= names else {main: value}


def _pair(item: str, text: str) -> tuple[str, Any]:
    key, equals, value = item.partition("=")
    if not equals:
        raise ChainError(f"In the stage {text.strip()!r}, {item.strip()!r} is not of the form key=value.")
    return key.strip(), _value(value)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else text


def _shown(name: str, params: Params) -> str:
    values = params.to_mapping()
    pairs = [(key, json.dumps(value, ensure_ascii=False)) for key, value in values.items()]
    if len(pairs) == 1 and pairs[0][0] == params.main():
        return f"{name}={pairs[0][1]}"
    return name + (":" + ",".join(f"{key}={value}" for key, value in pairs) if pairs else "")


def _split(text: str, delimiter: str) -> list[str]:
    """Split at delimiters outside quotes and brackets."""
    parts, depth, quoted, escaped, start = [], 0, False, False, 0
    for index, char in enumerate(text):
        if escaped:
            escaped = False
        elif quoted and char == "\\":
            escaped = True
        elif char == '"':
            quoted = not quoted
        elif not quoted:
            depth += (char in "[{") - (char in "]}")
            if char == delimiter and depth == 0:
                parts.append(text[start:index])
                start = index + 1
    return [*parts, text[start:]]


_FOLLOWING = ("mirostat", "adaptive_p")
GROUPS = {"penalties": ("repetition", "frequency", "presence")}


def expand(names: Sequence[str], registry: Registry | None = None) -> tuple[str, ...]:
    """Return stage names, with groups (penalties) and phases (truncate) replaced by their stages.

    ChainError for an unknown name and for a stage that is named twice.
    """
    registry = registry or builtin_registry()
    phases = {phase.name.lower(): phase for phase in Phase}
    expanded: list[str] = []
    for name in names:
        if name in phases:
            stages: Sequence[str] = [n for n in registry.names() if registry.phase(n) == phases[name]]
        else:
            stages = GROUPS.get(name, (name,))
        for stage in stages:
            if stage not in registry:
                names_known = [*registry.names(), *GROUPS, *phases]
                raise ChainError(f"There is no stage {stage!r} to order. {nearest(stage, names_known)}")
            if stage in expanded:
                raise twice(stage, "order", registry)
            expanded.append(stage)
    return tuple(expanded)


def reorder(
    chain: Chain, names: Sequence[str], registry: Registry | None = None, *, is_open: bool = False
) -> Chain:
    """Return the chain in the order of `names`; names of stages that it lacks are ignored.

    CONSTRAIN stages that are not named run first. Any other active stage that is not named is a ChainError;
    with `is_open` it is inserted right after the stages that precede it in the default order.
    """
    registry = registry or builtin_registry()
    order = [*expand(names, registry)]
    names_of = dict.fromkeys(name for name, _ in chain)
    on = {name for name, params in chain if not params.is_off()}
    masks = [n for n in names_of if n not in order and registry.phase(n) == Phase.CONSTRAIN]
    left_out = [n for n in names_of if n not in order and n not in masks]
    would_run = [name for name in left_out if name in on]
    if would_run and not is_open:
        text = f"The order leaves out {', '.join(would_run)}, which would run. Name it too."
        raise ChainError(text, stages=tuple(would_run))
    for stage in sorted(left_out, key=registry.names().index):
        order.insert(registry.place(order, stage), stage)
    ranks = {name: rank for rank, name in enumerate((*masks, *order))}
    return Chain(tuple(sorted(chain.stages, key=lambda stage: ranks[stage[0]])))


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
    dynamic, edt = active.get("dynamic_temperature"), active.get("edt")
    if isinstance(dynamic, DynamicTemperatureParams):
        _check_bounds(dynamic)
    if dynamic is not None and edt is not None:
        raise Contradiction("dynamic_temperature", "edt", "each sets the temperature of a step")
    if active.get("temperature") is not None:  # relative values were merged with the temperature already
        if dynamic is not None:
            why = "min and max of dynamic_temperature are two more"
            raise Contradiction("temperature", "dynamic_temperature", why)
        if edt is not None:
            raise Contradiction("temperature", "edt", "t0 of edt is one too")
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


def _check_bounds(params: DynamicTemperatureParams) -> None:
    name, low, high = "dynamic_temperature", params.min, params.max
    if params.range and (low is not None or high is not None):
        text = f"{name} has a range around the temperature and also min or max. Leave out one of the two."
    elif not params.is_relative and (low is None or high is None):
        present, missing = ("max", "min") if low is None else ("min", "max")
        text = f"{name} has a {present}, but no {missing}. Give both, or a range around the temperature."
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


_MAX_CONDITIONS = 256
Key = tuple[str, int]  # a stage's name and the index of its entry; each entry has an instance of its own


def check_conditions(chain: Chain, registry: Registry) -> None:
    """Raise ChainError for a condition that a stage does not support, and for a repeated stage.

    A stage may have several adjacent entries if no two of them have the same condition.
    """
    if len({name for name, _ in chain}) == len(chain.stages) and not chain.is_conditional:
        return
    if len({params.when for _, params in chain}) > _MAX_CONDITIONS:
        raise ChainError(f"The chain has more than {_MAX_CONDITIONS} different conditions.")
    seen, last = set[tuple[str, When | None]](), ""
    for name, params in chain:
        if params.when is not None and name in NO_CONDITION:
            text = f"The stage {name} takes no condition (when): {NO_CONDITION[name]}. Leave it out."
            raise ChainError(text, stages=(name,))
        if (name, params.when) in seen:
            raise twice(name, "chain", registry)
        if name != last and any(name == other for other, _ in seen):
            text = f"The stage {name} stands in two places of the chain. Put all its entries side by side."
            raise ChainError(text, stages=(name,))
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
        self._acting: dict[tuple[bool, ...], tuple[Key, ...]] = {}

    def where(self, hold: Sequence[bool]) -> tuple[Key, ...]:
        """Return the entries that act if these conditions hold; `hold` has one flag for each of `whens`."""
        flags = tuple(hold)
        if flags not in self._acting:
            acting = list[Key]()
            for name in self.order:
                holding = [key for number, key in self._groups[name] if number < 0 or flags[number]]
                if holding and not self.stages[holding[-1]][1].is_off():
                    acting.append(holding[-1])
            if any(_is_greedy(self.stages[key]) for key in acting):
                acting = [k for k in acting if _is_greedy(self.stages[k]) or not self._is_late[k[0]]]
            self._acting[flags] = tuple(acting)
        return self._acting[flags]

    def left_out(self, hold: Sequence[bool]) -> tuple[tuple[int, Stage, str], ...]:
        """Return the stages left out if these conditions hold, with a reason of a few words each.

        The number of a stage counts the acting stages before it.
        """
        acting, count = {name for name, _ in self.where(hold)}, 0
        left_out = list[tuple[int, Stage, str]]()
        for name in self.order:
            entries = [key for _, key in self._groups[name] if key in self.keys]
            if name in acting:
                count += 1
            elif entries:
                whens = [self.stages[key][1].when for key in entries]
                stated = " or ".join(str(when) for when in whens if when is not None)
                is_met = any(number < 0 or hold[number] for number, _ in self._groups[name])
                reason = "the draw is greedy here" if is_met else f"condition not met: {stated}"
                left_out.append((count, self.stages[entries[0]], reason))
        return tuple(left_out)


def _is_greedy(stage: Stage) -> bool:
    return stage[0] == "temperature" and getattr(stage[1], "temperature", 1.0) == 0

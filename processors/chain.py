"""`Chain`: the ordered stages of a request and their parameters, as one hashable value.

As text, stages are joined by ` | `. `top_p=0.9` sets a stage's main parameter,
`repetition:penalty=1.1,window=64` sets parameters by name, a bare name takes the defaults. Values are JSON or
a bare word: `ban=["a b","c"]`, `top_k:k=40,ties=keep`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, TypeGuard

from processors.catalog import Draw, Phase, TemperatureParams
from processors.catalog.scale import VaryingParams
from processors.errors import ChainError
from processors.params import Params
from processors.registry import Registry, builtin_registry

__all__ = ["Chain", "Stage", "fields_of", "parse_fields", "parse_stage"]

_NUMBER = re.compile(
    r"[+-]?(\d{1,40}\.?|\d{0,40}\.\d{1,40})([eE][+-]?\d{1,3})?"
)  # .5 and +5, which JSON lacks

Stage = tuple[str, Params]
_MOST = 200  # characters of a chain in its repr


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
        return cls(tuple(sorted(stages, key=lambda one: (names.index(one[0]), one[1].when is not None))))

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
            changed = [
                (n, p.replace(**values) if n == name and p.when is None else p) for n, p in self.stages
            ]
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
        heat = next(
            (p.temperature for _, p in on if isinstance(p, TemperatureParams) and p.when is None), None
        )
        if not heat or not any(_is_relative(params) for _, params in on):
            return Chain(on)
        merged = (
            (n, p.around(heat) if _is_relative(p) else p)
            for n, p in on
            if n != "temperature" or p.when is not None
        )
        return Chain(tuple(merged))

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
        return f"Chain({text if len(text) <= _MOST else f'{text[: _MOST - 3]}...'!r})"

    def _repr_html_(self) -> str:
        """Return the stages as a table, for a notebook."""
        cells = ((name, _shown(name, params).removeprefix(name)[1:]) for name, params in self.stages)
        rows = "".join(
            f"<tr><td>{place}</td><td>{_escaped(name)}</td><td>{_escaped(value)}</td></tr>"
            for place, (name, value) in enumerate(cells, start=1)
        )
        head = "<tr><th></th><th>stage</th><th>value</th></tr>"
        return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"

    def __str__(self) -> str:
        return " | ".join(_shown(name, params) for name, params in self.stages)


def _escaped(text: str) -> str:
    """Return a text as HTML, on one line, with control and format characters by their code."""
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
    head, colon, rest = text.strip().partition(":")
    name, equals, value = head.partition("=")
    registry = registry or builtin_registry()
    if equals:
        return name.strip(), fields_of(name.strip(), _value(value + colon + rest), registry)
    pairs = [_pair(item, text) for item in _split(rest, ",")] if colon else []
    return name.strip(), fields_of(name.strip(), dict(pairs), registry)


def _stage(name: str, value: Any, registry: Registry) -> Stage:
    return name, registry.spec(name).params.from_mapping(fields_of(name, value, registry), stage=name)


def fields_of(name: str, value: Any, registry: Registry) -> dict[str, Any]:
    """Return the fields that a stage's value sets: those of a mapping, or the main field."""
    params = registry.spec(name).params
    return dict(value) if isinstance(value, Mapping) and _is_fields(value, params) else {params.main(): value}


def _is_fields(value: Mapping[Any, Any], params: type[Params]) -> bool:
    # A mapping may also be a main value (bias: {42: 1.5}). It sets fields if all keys are field names, or if
    # the main value cannot be a mapping: then an unknown key gets a "did you mean".
    takes_mapping = params.default(params.main()) == () and params.main() not in value
    return not takes_mapping or not value or set(value) <= {field.name for field in params.own_fields()}


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

"""Example parameters for checks: tables for built-in stages, guesses from the types for others."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from processors.errors import ParamError
from processors.params import Params, describe
from processors.testing.examples import (
    adjust,
    constrain,
    endings,
    feedback,
    forcing,
    gate,
    ranked,
    repeats,
    scale,
    thresholds,
    truncate,
    watermark,
)

__all__ = ["EXAMPLES", "examples"]

_FAMILIES = (
    constrain,
    forcing,
    adjust,
    endings,
    repeats,
    scale,
    truncate,
    thresholds,
    ranked,
    gate,
    feedback,
    watermark,
)
EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    params: found for family in _FAMILIES for params, found in family.EXAMPLES.items()
}


def examples(params: type[Params]) -> tuple[Params, ...]:
    """Return parameters that switch a stage on: from the table, else guesses that vary one field at a time.

    ParamError if no guess is accepted.
    """
    if params in EXAMPLES:
        return EXAMPLES[params]
    fields = {name: tuple(_guesses(field["type"])) for name, field in describe(params).items()}
    on = [built for value in fields[params.main()] if (built := _built(params, {params.main(): value}))]
    main = {params.main(): getattr(on[0], params.main())} if on else {}
    others = [
        _built(params, main | {name: value})
        for name, values in fields.items()
        if name not in main
        for value in values
    ]
    found = tuple(dict.fromkeys([*on, *filter(None, others)]))
    if not found:
        raise ParamError(f"No example of {params.__name__} could be guessed. Pass params=[...].")
    return found


def _built(params: type[Params], values: dict[str, Any]) -> Params | None:
    try:
        built = params.from_mapping(values)
    except ParamError:
        return None
    return None if built.is_off() else built


def _guesses(hint: Any) -> Iterator[Any]:
    simple: dict[Any, tuple[Any, ...]] = {
        float: (0.5, 2.0, -1.0, 0.05, 10.0),
        int: (1, 3, 10, 200),
        bool: (True, False),
        str: ("the", "a"),
    }
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in simple:
        yield from simple[hint]
    elif origin is Literal:
        yield from arguments
    elif origin is tuple:
        inner = [next(_guesses(argument), None) for argument in arguments if argument is not Ellipsis]
        yield tuple(inner)
    elif origin in (Union, types.UnionType):
        for argument in arguments:
            yield from _guesses(argument)

"""Example parameters for checks: a table for built-in stages, guesses from the types for others."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from processors.catalog import (
    AllowedParams,
    BanParams,
    BiasParams,
    FrequencyParams,
    GrammarParams,
    IgnoreEosParams,
    MinPParams,
    MinTokensParams,
    PresenceParams,
    RepetitionParams,
    SuppressParams,
    TailParams,
    TemperatureParams,
    TopKParams,
    TopPParams,
)
from processors.errors import ParamError
from processors.params import Params, describe

__all__ = ["EXAMPLES", "examples"]


def _choice(*texts: str, **rest: Any) -> GrammarParams:
    return GrammarParams(json.dumps(texts), kind="choice", backend="trie", **rest)


EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    TailParams: (TailParams(284), TailParams(40), TailParams(10_000)),
    AllowedParams: (AllowedParams((5,)), AllowedParams((9, 3, 200, 9)), AllowedParams(tuple(range(284)))),
    SuppressParams: (SuppressParams((0,)), SuppressParams((7, 5, 7))),
    BanParams: (
        BanParams(("cat",)),
        BanParams(("aba", "bab", "ab")),
        BanParams(("\n", "é")),
        BanParams(("😀", "the cat sat", "he")),
    ),
    MinTokensParams: (MinTokensParams(1), MinTokensParams(4), MinTokensParams(100)),
    IgnoreEosParams: (IgnoreEosParams(True),),
    GrammarParams: (
        _choice(" sat. the cat the ca", " sat. the cat the ca😀", " sat. the cat"),
        _choice("a", "ab", "abab", "ababab", "the end"),
        _choice("\n", "\n\n", "\n\né", "é"),
        _choice("the cat", "the cat sat", "the", after=" the"),
        _choice("ab", after="a"),
        _choice("b", "ba", after="</"),
        _choice("the cat sat. the cat", "the cat sat on", canonical=False),
    ),
    BiasParams: (BiasParams(((5, 2.5), (" the", -math.inf), (283, -1e300))), BiasParams((("cat", -100.0),))),
    RepetitionParams: (
        RepetitionParams(1.3),
        RepetitionParams(0.5, scope="output", exempt=()),
        RepetitionParams(1e30, scope="prompt", window=4, exempt=("stop", " the", 9)),
    ),
    FrequencyParams: (
        FrequencyParams(0.4),
        FrequencyParams(-1.5, scope="both", exempt=("special", "stop")),
        FrequencyParams(1e300, scope="prompt", window=2),
    ),
    PresenceParams: (
        PresenceParams(0.7),
        PresenceParams(-2.0, scope="both", window=3),
        PresenceParams(0.1, scope="prompt", exempt=("stop", 5)),
    ),
    TemperatureParams: tuple(TemperatureParams(t) for t in (0.1, 0.7, 2.5, 1e-44, 1e30)),
    TopKParams: (
        *(TopKParams(k) for k in (1, 5, 40, 10_000)),
        TopKParams(5, ties="keep"),
        TopKParams(2, keep=7),
    ),
    TopPParams: (
        *(TopPParams(p) for p in (0.0, 0.3, 0.9, 0.9999)),
        TopPParams(0.5, boundary="exclusive"),
        TopPParams(0.0, keep=6),
    ),
    MinPParams: (*(MinPParams(p) for p in (1e-300, 0.05, 0.5, 1.0)), MinPParams(0.9, keep=9)),
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

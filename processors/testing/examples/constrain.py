"""Example parameters of the stages in processors.catalog.constrain."""

from __future__ import annotations

import json
from typing import Any

from processors.catalog.constrain import (
    AllowedParams,
    BanParams,
    BeginSuppressParams,
    EosAboveParams,
    GrammarParams,
    IgnoreEosParams,
    MinTokensParams,
    SuppressParams,
    TailParams,
)
from processors.params import Params

__all__ = ["EXAMPLES"]


def _choice(*texts: str, **rest: Any) -> GrammarParams:
    return GrammarParams(json.dumps(texts), kind="choice", backend="trie", **rest)


EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    TailParams: (TailParams(284), TailParams(40), TailParams(10_000)),
    AllowedParams: (AllowedParams((5,)), AllowedParams((9, 3, 200, 9)), AllowedParams(tuple(range(284)))),
    SuppressParams: (SuppressParams((0,)), SuppressParams((7, 5, 7))),
    BeginSuppressParams: (BeginSuppressParams((0,)), BeginSuppressParams((7, 5, 7))),
    BanParams: (
        BanParams(("cat",)),
        BanParams(("aba", "bab", "ab")),
        BanParams(("\n", "é")),
        BanParams(("😀", "the cat sat", "he")),
        BanParams(("ABA", "É"), ignore_case=True),
        BanParams(("ab", " the"), rewind=True),
    ),
    MinTokensParams: (MinTokensParams(1), MinTokensParams(4), MinTokensParams(100)),
    IgnoreEosParams: (IgnoreEosParams(True),),
    EosAboveParams: tuple(EosAboveParams(p) for p in (1e-300, 0.003, 0.999)),
    GrammarParams: (
        _choice(" sat. the cat the ca", " sat. the cat the ca😀", " sat. the cat"),
        _choice("a", "ab", "abab", "ababab", "the end"),
        _choice("\n", "\n\n", "\n\né", "é"),
        _choice("the cat", "the cat sat", "the", after=" the"),
        _choice("ab", after="a"),
        _choice("b", "ba", after="</"),
        _choice("the cat sat. the cat", "the cat sat on", canonical=False),
    ),
}

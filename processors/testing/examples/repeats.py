"""Example parameters of the stages in processors.catalog.repeats."""

from __future__ import annotations

from processors.catalog.repeats import DryParams, LzParams, NoRepeatNgramParams
from processors.params import Params

__all__ = ["EXAMPLES"]

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    NoRepeatNgramParams: (
        NoRepeatNgramParams(1),
        NoRepeatNgramParams(2, exempt=()),
        NoRepeatNgramParams(3, scope="output", window=5),
        NoRepeatNgramParams(2, scope="prompt", exempt=("stop", 7)),
    ),
    DryParams: (
        DryParams(0.8, allowed=1),
        DryParams(2.0, base=1.1, allowed=0, breakers=(), exempt=()),
        DryParams(1.0, allowed=1, window=6, breakers=("at s", "cab", "\n"), exempt=("stop", 7)),
        DryParams(1.5, allowed=1, matches="count", max_ngram=2, breakers=("😀",)),
        DryParams(1.0, base=1.0, allowed=1, strict=True, scope="output", breakers=("a",)),
        DryParams(1e300, base=1e30, allowed=0, scope="prompt", breakers=("ab", "b")),
    ),
    LzParams: (
        LzParams(0.15),
        LzParams(1.0, length=1, scope="both", exempt=()),
        LzParams(1e300, length=3, window=4, scope="prompt", exempt=("stop", 9)),
    ),
}

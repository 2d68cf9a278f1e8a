"""Example parameters of the stages in processors.catalog.endings."""

from __future__ import annotations

from processors.catalog.endings import LengthBoostParams, LengthDecayParams
from processors.params import Params

__all__ = ["EXAMPLES"]

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    LengthDecayParams: (
        LengthDecayParams((0, 1.1)),
        LengthDecayParams((2, 1e9)),
        LengthDecayParams((1, 0.5)),
    ),
    LengthBoostParams: (
        LengthBoostParams(1.5),
        LengthBoostParams(-1e90, power=0.5),
        LengthBoostParams(2.0, power=0, after=("the", "ca", "a", "\n")),
    ),
}

"""Example parameters of the stages in processors.catalog.truncate."""

from __future__ import annotations

from processors.catalog.truncate import MinPParams, TemperatureParams, TopKParams, TopPParams
from processors.params import Params

__all__ = ["EXAMPLES"]

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    TemperatureParams: tuple(TemperatureParams(t) for t in (0.1, 0.7, 2.5, 1e-44, 1e30)),
    MinPParams: (*(MinPParams(p) for p in (1e-300, 0.05, 0.5, 1.0)), MinPParams(0.9, keep=9)),
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
}

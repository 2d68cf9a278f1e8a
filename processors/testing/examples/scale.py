"""Example parameters of the stages in processors.catalog.scale."""

from __future__ import annotations

from processors.catalog.scale import DynamicTemperatureParams, EdtParams, SmoothingParams
from processors.params import Params

__all__ = ["EXAMPLES"]

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    DynamicTemperatureParams: (
        DynamicTemperatureParams(0.5, 1.5),
        DynamicTemperatureParams(0.0, 2.0, 3.0),
        DynamicTemperatureParams(1e-44, 1e30, 0.0),
        DynamicTemperatureParams(0.0, 0.0),
        DynamicTemperatureParams(range=0.4),
        DynamicTemperatureParams(range=7.0, exponent=0.5),
    ),
    EdtParams: (EdtParams(0.1), EdtParams(1.0, t0=0.6), EdtParams(1e-300, t0=1e30), EdtParams(1e300)),
    SmoothingParams: (
        SmoothingParams(0.3),
        SmoothingParams(0.05, curve=2.0),
        SmoothingParams(4.0, curve=3.0),
        SmoothingParams(1e-300),
        SmoothingParams(1e300, curve=1.5),
    ),
}

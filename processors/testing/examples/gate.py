"""Example parameters of the stages in processors.catalog.gate."""

from __future__ import annotations

from processors.catalog.gate import XtcParams
from processors.params import Params

__all__ = ["EXAMPLES"]

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    XtcParams: (
        XtcParams(1.0, 0.01),
        XtcParams(0.5, 1e-300),
        XtcParams(1.0, 0.02, exempt=(), ties="keep", compare="gt"),
        XtcParams(1.0, 0.004, exempt=("special", "stop", 12, "e"), on_exempt="uncount"),
        XtcParams(1.0, 0.004, exempt=("newline", 20, 21, 22), on_exempt="skip"),
        XtcParams(1.0, 0.01, mode="expected"),
        XtcParams(0.3, 0.01, mode="expected", exempt=(12, 13)),
        XtcParams(1.0, 0.001, keep=40),
        XtcParams(1e-300, 0.6),
    ),
}

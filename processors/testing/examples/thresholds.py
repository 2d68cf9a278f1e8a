"""Example parameters of the stages in processors.catalog.thresholds."""

from __future__ import annotations

from processors.catalog.thresholds import EpsilonParams, EtaParams, PLessParams, TopAParams, TopNSigmaParams
from processors.params import Params

__all__ = ["EXAMPLES"]

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    TopNSigmaParams: (
        *(TopNSigmaParams(n) for n in (1e-3, 0.7, 1.0, 3.0, 1e30)),
        TopNSigmaParams(1.0, std="sample"),
        TopNSigmaParams(0.1, keep=9),
    ),
    EpsilonParams: (
        *(EpsilonParams(cutoff) for cutoff in (1e-300, 3e-4, 0.02, 0.9)),
        EpsilonParams(0.5, keep=9),
    ),
    EtaParams: (*(EtaParams(cutoff) for cutoff in (1e-300, 3e-4, 0.02, 0.9)), EtaParams(0.5, keep=9)),
    TopAParams: (*(TopAParams(a) for a in (1e-300, 0.2, 1.0)), TopAParams(1.0, keep=9)),
    PLessParams: (
        *(PLessParams(order) for order in (1.01, 2.0, 3.0, 100.0)),
        PLessParams(2.0, norm=True),
        PLessParams(2.0, keep=9),
    ),
}

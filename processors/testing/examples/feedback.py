"""Example parameters of the stages in processors.catalog.feedback."""

from __future__ import annotations

from processors.catalog.feedback import AdaptivePParams, MirostatParams, SkewParams
from processors.params import Params

__all__ = ["EXAMPLES"]

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    MirostatParams: (
        MirostatParams(2, tau=1.5, eta=1.0),
        MirostatParams(1, tau=1.5, eta=1.0),
        MirostatParams(2),
        MirostatParams(1, tau=0.5, eta=3.0),
        MirostatParams(2, tau=0.0),
        MirostatParams(2, tau=1000.0, eta=1000.0),
        MirostatParams(1, tau=1000.0, eta=1000.0),
    ),
    SkewParams: tuple(SkewParams(s) for s in (0.7, -0.7, 10.0, -10.0, 1e-12)),
    AdaptivePParams: (
        AdaptivePParams(0.3),
        AdaptivePParams(0.5, decay=0.0),
        AdaptivePParams(1.0, decay=0.99),
        AdaptivePParams(1e-300, decay=0.5),
    ),
}

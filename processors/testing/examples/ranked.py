"""Example parameters of the stages in processors.catalog.ranked."""

from __future__ import annotations

from processors.catalog.ranked import MinKParams, TfsParams, TopHParams, TypicalParams
from processors.params import Params

__all__ = ["EXAMPLES"]

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    TopHParams: (
        *(TopHParams(h) for h in (1e-300, 0.4, 0.9, 1.0)),
        TopHParams(0.6, candidates=5),
        TopHParams(0.6, candidates=5, renormalise=False),
        TopHParams(0.1, candidates=2, keep=9),
    ),
    MinKParams: (*(MinKParams(tau) for tau in (0.0, 3.0, 60.0, 1e300)), MinKParams(0.0, keep=9)),
    TypicalParams: (
        *(TypicalParams(p) for p in (1e-300, 0.2, 0.95, 0.9999)),
        TypicalParams(0.5, boundary="strict"),
        TypicalParams(0.5, boundary="exclusive"),
        TypicalParams(0.3, ties="keep"),
        TypicalParams(0.1, keep=9),
    ),
    TfsParams: (*(TfsParams(z) for z in (0.0, 0.3, 0.95)), TfsParams(0.9, "kobold"), TfsParams(0.1, keep=9)),
}

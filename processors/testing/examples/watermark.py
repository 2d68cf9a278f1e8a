"""Example parameters of the stages in processors.catalog.watermark."""

from __future__ import annotations

from processors.catalog.watermark import GumbelMarkParams, KgwParams, SynthIdParams
from processors.params import Params
from processors.secret import Secret

__all__ = ["EXAMPLES"]

_KEY = Secret(15485863)
_KEYS = Secret((654, 400, 836, 123, 340, 443, 597, 160, 57, 29, 590, 639))

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    KgwParams: (
        KgwParams(_KEY),
        KgwParams(Secret(2**63 - 1), ratio=0.5, bias=-3.0, width=3, vocab=200),
        KgwParams(_KEY, scheme="selfhash", bias=1000.0),
        KgwParams(_KEY, scheme="selfhash", width=4, vocab=1000),
    ),
    SynthIdParams: (
        SynthIdParams(_KEYS),
        SynthIdParams(Secret(0), ngram=2, table_size=64, table_seed=2**60, history=1),
        SynthIdParams(Secret((1, 2**63 - 1)), ngram=3, skip_first=True),
    ),
    GumbelMarkParams: (
        GumbelMarkParams(_KEY),
        GumbelMarkParams(Secret(2**64 - 1), width=1, deduplicate="none"),
        GumbelMarkParams(_KEY, width=2, deduplicate="all", history=None),
        GumbelMarkParams(_KEY, width=6, alpha=1.0, history=1),
    ),
}

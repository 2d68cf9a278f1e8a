"""Example parameters of the stages in processors.catalog.adjust."""

from __future__ import annotations

import math

from processors.catalog.adjust import BiasParams, FrequencyParams, PresenceParams, RepetitionParams
from processors.params import Params

__all__ = ["EXAMPLES"]

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    BiasParams: (BiasParams(((5, 2.5), (" the", -math.inf), (283, -1e300))), BiasParams((("cat", -100.0),))),
    RepetitionParams: (
        RepetitionParams(1.3),
        RepetitionParams(0.5, scope="output", exempt=()),
        RepetitionParams(1e30, scope="prompt", window=4, exempt=("stop", " the", 9)),
    ),
    FrequencyParams: (
        FrequencyParams(0.4),
        FrequencyParams(-1.5, scope="both", exempt=("special", "stop")),
        FrequencyParams(1e300, scope="prompt", window=2),
    ),
    PresenceParams: (
        PresenceParams(0.7),
        PresenceParams(-2.0, scope="both", window=3),
        PresenceParams(0.1, scope="prompt", exempt=("stop", 5)),
    ),
}

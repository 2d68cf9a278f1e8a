"""Example parameters of the stages in processors.catalog.adjust."""

from __future__ import annotations

import math

from processors.catalog.adjust import (
    BiasParams,
    FrequencyParams,
    PresenceParams,
    RepetitionParams,
    SequenceBiasParams,
)
from processors.params import Params

__all__ = ["EXAMPLES"]

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    BiasParams: (BiasParams(((5, 2.5), (" the", -math.inf), (283, -1e300))), BiasParams((("cat", -100.0),))),
    SequenceBiasParams: (
        SequenceBiasParams(((" the cat", 2.5), ((7, 9), -math.inf), ((0, 2, 7, 7, 7, 1, 0, 5), 3.0))),
        SequenceBiasParams((("the", -1e300), ("ab", 2.0), ((12, 12, 30), -1.0), ((12, 30), 0.5), (30, 1e30))),
    ),
    RepetitionParams: (
        RepetitionParams(1.3),
        RepetitionParams(0.5, scope="output", exempt=()),
        RepetitionParams(1e30, scope="prompt", window=4, exempt=("stop", " the", 9)),
        RepetitionParams(1.7, slope=0.4, window=7),
        RepetitionParams(3.0, sustain=2, decay=4, exempt=("stop",)),
        RepetitionParams(0.5, sustain=1, decay=3, decay_space="logit", slope=0.1, scope="output", exempt=()),
        RepetitionParams(1e30, sustain=3, scope="prompt"),
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

"""Green tokens are those of transformers on a CPU, and those of a Mersenne Twister in plain Python."""

from processors.rng import Green
from processors.stages.watermarks import KgwParams


def test_an_id_outside_the_vocabulary_is_not_green():
    assert not Green(KgwParams(1), 100).is_green((3, 100))

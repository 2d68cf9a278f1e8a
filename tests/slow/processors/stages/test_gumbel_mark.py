"""gumbel_mark decides the token by key and context; repeated contexts are left to the draw."""

from processors.chain import Chain
from processors.stages.watermarks import GumbelMarkParams
from processors.standalone import sample
from processors.testing.checks import random_logits, toy_env


def test_the_second_of_two_keys_is_used_as_often_as_alpha_says():
    def token(alpha, seed=0):
        chain = Chain((("gumbel_mark", GumbelMarkParams(7, alpha=alpha)),))
        return int(sample(random_logits(1, toy_env())[0], chain, seed=seed, output=[3]))

    first, second = token(0.0), token(1.0)
    assert first != second
    drawn = [token(0.3, seed) for seed in range(200)]
    assert set(drawn) == {first, second}
    assert 40 < drawn.count(second) < 80

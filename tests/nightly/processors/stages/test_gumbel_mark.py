"""gumbel_mark decides the token by key and context; repeated contexts are left to the draw."""

import torch

from processors.chain import Chain
from processors.stages.watermarks import GumbelMarkParams
from processors.standalone import sample


def test_over_keys_tokens_have_the_probabilities_of_the_draw():
    logits = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625, 0.0]).log()
    tokens = [
        int(sample(logits, Chain((("gumbel_mark", GumbelMarkParams(key)),)), draw="multinomial"))
        for key in range(2000)
    ]
    shares = torch.bincount(torch.tensor(tokens), minlength=6) / 2000
    torch.testing.assert_close(shares, logits.exp(), atol=0.04, rtol=0)

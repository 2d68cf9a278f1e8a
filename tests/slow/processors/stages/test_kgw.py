"""kgw adds the bias where transformers does, bit for bit, and revives no masked token."""

import torch
from transformers.generation import WatermarkLogitsProcessor

from processors.chain import Chain
from processors.stages.watermarks import KgwParams
from processors.standalone import LogitsProcessor

WIDTH = 500


def test_logits_are_those_of_transformers():
    for width in [1, 3]:
        for scheme in ["lefthash", "selfhash"]:
            theirs = WatermarkLogitsProcessor(
                WIDTH, "cpu", seeding_scheme=scheme, context_width=width, bias=2.5
            )
            params = KgwParams(15485863, scheme=scheme, width=width, bias=2.5)
            generator = torch.Generator().manual_seed(0)
            ids = torch.randint(0, WIDTH, (6, 12), generator=generator)
            for length in range(width, 12):
                logits = 3 * torch.randn(6, WIDTH, generator=generator)
                logits[::2, ::3] = -torch.inf
                ours = LogitsProcessor(Chain((("kgw", params),)))
                ours(ids[:, :1], logits)  # the prompt is one token, the rest is committed
                assert torch.equal(ours(ids[:, :length], logits), theirs(ids[:, :length], logits.clone())), (
                    width,
                    scheme,
                )

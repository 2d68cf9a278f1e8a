"""What has to hold on a CUDA device; skipped where there is none."""

from pathlib import Path

import pytest
import torch

from gencli.engine import Engine
from gencli.events import Finish
from gencli.models.hf import HFRunner
from gencli.request import Limits, Request
from gencli.tokenizer import HFTokenizer
from processors.chain import Chain
from processors.rng import Stream, row_keys, token_hash
from processors.sampler import gumbel_max, inverse_cdf

TINY = Path(__file__).parent.parent / "gencli" / "assets" / "tiny"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_the_hash_has_the_same_bits():
    seeds, positions, ids = torch.arange(64), torch.arange(64) * 7, torch.arange(5000)
    here = token_hash(row_keys(seeds, positions, Stream.TOKEN)[:, None], ids)
    there = token_hash(row_keys(seeds.cuda(), positions.cuda(), Stream.TOKEN)[:, None], ids.cuda())
    assert torch.equal(here, there.cpu())


@pytest.mark.parametrize("draw", [gumbel_max, inverse_cdf])
@pytest.mark.parametrize("survivors", [40, 30_000])
def test_draws_agree(draw, survivors):
    logits = torch.randn(32, 50_000, generator=torch.Generator().manual_seed(0))
    logits[:, survivors:] = -torch.inf
    seeds, positions = torch.arange(32), torch.arange(32)
    there = draw(logits.cuda(), seeds.cuda(), positions.cuda())
    assert torch.equal(draw(logits, seeds, positions), there.cpu())


def test_greedy_text_is_that_of_the_cpu():
    texts = []
    for device in ("cpu", "cuda"):
        tokenizer = HFTokenizer.load(TINY)
        engine = Engine(HFRunner.load(TINY, dtype="float32", device=device), tokenizer)
        prompt = tuple(tokenizer.encode("Once upon a time"))
        engine.submit(Request("story", prompt, Chain.parse("temperature=0"), limits=Limits(max_tokens=64)))
        texts += [event.text for event in engine.run() if isinstance(event, Finish)]
    assert texts[0] == texts[1]

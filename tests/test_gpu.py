"""What has to hold on a CUDA device; skipped where there is none."""

import warnings
from pathlib import Path

import pytest
import torch

from gencli.core.events import Finish
from gencli.core.request import Drafting, Guidance, Limits, Request
from gencli.engine.engine import Engine
from gencli.models.hf import HFRunner
from gencli.models.side_stream import run_on_side_stream
from gencli.speculative.draft_model import ModelDrafter
from gencli.text.tokenizer import HFTokenizer
from processors.chain import Chain
from processors.rng import Stream, row_keys, token_hash
from processors.sampler import gumbel_max, inverse_cdf

ASSETS = Path(__file__).parent.parent / "gencli" / "assets"
TINY = ASSETS / "tiny"
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


def stories(runner, *, drafter=None):
    """Texts behind prompts of several lengths, more of them than run at once."""
    tokenizer = HFTokenizer.load(TINY)
    engine = Engine(runner, tokenizer, max_batch=4, drafter=drafter)
    for words in (1, 40, 120, 160, 90, 10):
        prompt, limits = tuple(tokenizer.encode("Once upon a time " * words)), Limits(max_tokens=48)
        drafting, chain = Drafting("", 4 if drafter else None), Chain.parse("temperature=0.8")
        engine.submit(Request(str(words), prompt, chain, limits=limits, drafting=drafting))
    return {event.request: event.text for event in engine.run() if isinstance(event, Finish)}


def test_a_draft_model_on_a_stream_of_its_own_changes_no_text():
    target, draft = (
        HFRunner.load(ASSETS / name, dtype="float32", device="cuda") for name in ("tiny", "tiny-draft")
    )
    plain = stories(target)
    assert run_on_side_stream(draft) is not draft
    for _ in range(5):  # races show now and then only
        assert stories(target, drafter=ModelDrafter(run_on_side_stream(draft))) == plain


def num_waits(engine, prompt, max_tokens):
    """How often CUDA's own watch sees the host wait while a guided text of that length is drawn."""
    chain = Chain.parse("ignore_eos=true | repetition=1.1 | temperature=0.8 | top_p=0.9")
    limits, guidance = Limits(max_tokens=max_tokens), Guidance(1.5, prompt[:2])
    engine.submit(Request("story", prompt, chain, limits=limits, guidance=guidance))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            list(engine.run())
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in seen)


def test_a_guided_step_waits_for_its_tokens_alone():
    tokenizer = HFTokenizer.load(TINY)
    runner = HFRunner.load(TINY, dtype="float32", device="cuda", max_lanes=2)
    engine, prompt = Engine(runner, tokenizer, max_batch=1), tuple(tokenizer.encode("Once upon a time"))
    _, short, long = (num_waits(engine, prompt, tokens) for tokens in (48, 16, 48))
    assert long - short == 32

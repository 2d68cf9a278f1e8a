"""The host waits for a CUDA device once a step, by CUDA's own watch."""

import warnings

import pytest
import torch

from gencli import LLM
from gencli.core.request import Guidance, Limits, Request
from processors.chain import Chain
from tests.gpu.card import ON_A_CARD

pytestmark = [*ON_A_CARD, pytest.mark.filterwarnings("ignore::gencli.errors.GencliWarning")]

CHAINS = (
    "temperature=0",
    "temperature=0.8",
    "temperature=0.8 | top_p=0.9",
    "repetition=1.1 | temperature=0.8 | min_p=0.05 | top_k=50 | top_p=0.95",
)


def num_waits(engine, prompt, max_tokens, chain, guidance):
    """How often CUDA's own watch sees the host wait while a text of that length is drawn."""
    stages, draw = Chain.parse(f"ignore_eos=true | {chain}").resolved()
    limits = Limits(max_tokens=max_tokens)
    engine.submit(Request("story", prompt, stages, draw=draw, limits=limits, guidance=guidance))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            list(engine.run())
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in seen)


def check(chain, guidance=Guidance(), **options):  # noqa: B008
    """A text of 48 tokens has 32 waits more than one of 16, or fewer where the host waits for an event."""
    llm = LLM("tiny", device="cuda", dtype="float32", max_batch=1, **options)
    prompt = tuple(llm.tokenizer.encode("Once upon a time"))
    _, short, long = (num_waits(llm.engine, prompt, tokens, chain, guidance) for tokens in (48, 16, 48))
    assert long - short <= 32


@pytest.mark.parametrize("async_steps", [False, True])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_step_waits_for_its_tokens_at_most(chain, async_steps):
    check(chain, async_steps=async_steps)


@pytest.mark.parametrize("backend", ["native", "transformers"])
def test_a_guided_step_waits_for_its_tokens_alone(backend):
    guidance = Guidance(1.5, (1, 2))
    check("repetition=1.1 | temperature=0.8 | top_p=0.9", guidance, backend=backend)

"""Texts on a CUDA device: those of the CPU, and the same however the steps are run."""

from pathlib import Path

import pytest

from gencli import LLM, SamplingParams
from gencli.core.events import Finish
from gencli.core.request import Drafting, Limits, Request
from gencli.engine.engine import Engine
from gencli.models.hf_runner import HFRunner
from gencli.models.other_runners import run_on_side_stream
from gencli.speculative.draft_model import ModelDrafter
from gencli.text.tokenizer import HFTokenizer
from processors.chain import Chain
from tests.gpu.card import ON_A_CARD

ASSETS = Path(__file__).parents[2] / "gencli" / "assets"
TINY = ASSETS / "tiny"
pytestmark = [*ON_A_CARD, pytest.mark.filterwarnings("ignore::gencli.errors.GencliWarning")]

PROMPTS = ["Once upon a time", "The fox", "One day a girl found a box. " * 20, "Dear Mia,", "A"]
CHAINS = {
    "greedy": {"temperature": 0.0},
    "draw": {"temperature": 0.8},
    "nucleus": {"temperature": 0.8, "top_p": 0.9},
    "cuts": {"temperature": 0.8, "min_p": 0.05, "top_k": 50, "top_p": 0.95},
    "penalties": {"chain": "repetition=1.1 | frequency=0.5 | temperature=0.8 | top_p=0.9"},
    "grammar": {"temperature": 0.8, "regex": "[a-z ]{5,40}"},
    "inverse": {"temperature": 0.8, "top_p": 0.9, "sampler": "multinomial"},
}


def texts(values, prompts=PROMPTS, **options):
    """What a model on the card, or where `options` say, writes behind the prompts."""
    llm = LLM("tiny", **{"device": "cuda", "dtype": "float32", "max_batch": 4, **options})
    params = SamplingParams(max_tokens=32, seed=7, **values)
    return [out.text for out in llm.generate(prompts, params)]


@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_writes_the_texts_of_the_cpu(chain):
    assert texts(CHAINS[chain]) == texts(CHAINS[chain], device="cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("chain", ["greedy", "cuts", "penalties", "grammar"])
@pytest.mark.parametrize("one", [{"cuda_graphs": "off"}, {"async_steps": False}], ids=str)
def test_graphs_and_steps_ahead_change_no_text(one, chain, dtype):
    # Steps ahead decide which tokens are computed beside a prompt. In bfloat16 a text may depend on that, but
    # for one order of sums; in float32 the difference is far below that of two tokens' logits.
    options = {"dtype": dtype, "invariant": "on" if dtype == "bfloat16" else "auto"}
    assert texts(CHAINS[chain], **options, **one) == texts(CHAINS[chain], **options)


@pytest.mark.parametrize("drafter", ["ngram", "tiny-draft"])
@pytest.mark.parametrize("chain", ["greedy", "cuts", "penalties"])
def test_drafts_change_no_text_with_and_without_graphs(chain, drafter):
    plain, drafting = texts(CHAINS[chain]), CHAINS[chain] | {"draft_tokens": 4}
    assert texts(drafting, draft=drafter) == plain
    assert texts(drafting, draft=drafter, cuda_graphs="off") == plain


@pytest.mark.parametrize("one", [{"cuda_graphs": "off"}, {"async_steps": False}], ids=str)
def test_graphs_and_steps_ahead_of_transformers_change_no_text(one):
    given = {"backend": "transformers"}
    assert texts(CHAINS["cuts"], **given, **one) == texts(CHAINS["cuts"], **given)


@pytest.mark.parametrize("chain", ["greedy", "cuts"])
def test_an_invariant_text_is_the_same_in_any_company(chain):
    options = {"dtype": "bfloat16", "invariant": "on"}
    together = texts(CHAINS[chain], **options)
    alone = [texts(CHAINS[chain], [prompt], **options)[0] for prompt in PROMPTS[:1]]
    assert alone == together[:1]  # further prompts have seeds of their own
    assert texts(CHAINS[chain], max_batch=1, **options) == together


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

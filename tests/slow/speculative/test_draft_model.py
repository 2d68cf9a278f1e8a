"""Drafts of a model: its lanes, its draws, its stream and its launches."""

from itertools import product

import pytest
import torch

from gencli.errors import ModelError
from gencli.models.other_runners import FakeRunner
from gencli.runtime.model_loading import ModelChoice, load
from gencli.speculative.draft_model import DraftSampler
from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.sampler import Sampler
from tests.engine.harness import Watched
from tests.sham import CUDA, sham_device
from tests.speculative.cases import WIDTH as LETTERS_WIDTH
from tests.speculative.cases import outcomes
from tests.speculative.test_draft_model import Limited, feeds_of, rows


def test_the_first_layers_share_the_weights():
    runner, native = (
        load(ModelChoice("tiny", dtype="float32", backend=kind)).runner for kind in ("transformers", "native")
    )
    weights = {p.data_ptr() for p in runner._model.parameters()}
    for count in (1, 5):
        first = runner.first_layers(count, max_lanes=2)
        assert first.spec.vocab_size == runner.spec.vocab_size, count
        assert {p.data_ptr() for p in first._model.parameters()} < weights, count
        assert len(first._model.base_model.layers) == count
    first = native.first_layers(2, max_lanes=2)
    assert first._decoder.layers == native._decoder.layers[:2]
    assert first._decoder.embeddings is native._decoder.embeddings
    for whole, count in product((runner, native), (0, 6, 7)):
        with pytest.raises(ModelError, match="1 to 5 can be the first"):
            whole.first_layers(count, max_lanes=2)


def test_a_draft_that_is_narrower_wider_or_shorter_proposes_what_it_can():
    found, _ = outcomes(rows(3), max_batch=3)
    for draft in (FakeRunner(258, scale=2.0), FakeRunner(400)):
        assert outcomes(rows(3), drafter=Limited(draft), max_batch=3)[0] == found
    short, stood = outcomes(rows(1), drafter=Limited(FakeRunner(LETTERS_WIDTH, context=20)))
    assert short == outcomes(rows(1))[0]
    assert 0 < stood < 20


def test_a_pass_for_each_place_serves_all_texts_and_no_committed_token_is_read_twice():
    for seed in (0, 1):  # the second is another model than the target
        runner = Watched(LETTERS_WIDTH, seed)
        found, _ = outcomes(rows(3), drafter=Limited(runner), max_batch=3)
        read = sum(len(feed.tokens) for feeds in feeds_of(runner) for feed in feeds)
        drafts_fed = sum(len(feeds) for feeds in feeds_of(runner))
        assert read <= sum(3 + len(ids) for ids, _ in found.values()) + drafts_fed, seed
    runner = Watched(LETTERS_WIDTH)
    outcomes(rows(5), drafter=Limited(runner), max_batch=5)
    # After the first text's round, which reads the prompt that all have.
    assert all(len(feeds) == 5 for feeds in feeds_of(runner)[4:-8])


WIDTH, SLOTS = 8192, 8
# What the choice of one draft token of 8 texts launches behind two others, by chain: where only the token is
# asked for, with its probability, with the logits of q for rejection, and with both. The numbers of the
# comments are from when stages and random numbers ran one by one. Raise a number only for a reason.
LAUNCHES = {
    "temperature=0": (3, 12, 13, 17),  # 28, 30, 58, 62
    "temperature=0.8": (4, 10, 11, 15),  # 23, 25, 53, 57
    "temperature=0.8 | top_p=0.9": (6, 12, 13, 17),  # 60, 62, 90, 94
    "repetition=1.1 | temperature=0.8 | top_k=50 | top_p=0.95": (7, 13, 14, 18),  # 106, 108, 136, 140
}
KINDS = ({}, {"least": 0.01}, {"apart": True}, {"apart": True, "least": 0.01})


def chosen(chain, device, *, least=0.0, apart=False, seen=None):
    """The choices of 8 texts behind two drafts; `seen` tells of the second time that they are made."""
    history, sampler = History(slots=SLOTS, device=device), Sampler()
    pipeline = Pipeline(Env(WIDTH, device=device))
    for slot in range(SLOTS):
        history.admit(slot, [7, 8, 9], seed=slot)
        sampler.admit(slot, "gumbel")
        pipeline.admit(slot, Chain.parse(chain).active(), Admission((7, 8, 9)))
    logits = (3 * torch.randn(SLOTS, WIDTH, generator=torch.Generator().manual_seed(0))).to(device)
    choose, drafts = DraftSampler(pipeline, sampler, history), [(slot, 3) for slot in range(SLOTS)]
    for _ in range(1 if seen is None else 2):
        if seen:
            seen.clear()
        found = choose(logits, range(SLOTS), drafts, least=[least] * SLOTS, apart=[apart] * SLOTS)
    return found


needs_2_13 = pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="the table was made with PyTorch 2.13"
)


def check_launches(chains):
    for chain in chains:
        for kind, most in zip(KINDS, LAUNCHES[chain], strict=True):
            with sham_device() as seen:
                chosen(chain, CUDA, seen=seen, **kind)
                assert sum(seen.launches.values()) <= most, kind
                assert sum(seen.waits.values()) == 1, chain


@needs_2_13
def test_a_draft_token_launches_no_more_kernels_than_the_table_says_and_is_waited_for_once():
    check_launches([*LAUNCHES][2:3])


XTC = "xtc:probability=0.5,threshold=0.05 | temperature=0.8"


def check_choices(chains):
    for kind, chain in product(KINDS, chains):
        here = chosen(chain, torch.device("cpu"), **kind)
        with sham_device():
            there = chosen(chain, CUDA, **kind)
        for one, other in zip(here, there, strict=True):
            assert one.token == other.token, (kind, chain)
            assert one.probability == pytest.approx(other.probability, rel=1e-5), (kind, chain)
            assert (one.logits is None) == (other.logits is None) == ("apart" not in kind), (kind, chain)
            if one.logits is not None:
                torch.testing.assert_close(one.logits, other.logits.host, rtol=1e-6, atol=1e-6)


def test_a_draft_token_is_that_of_the_cpu():
    check_choices(([*LAUNCHES][-1], XTC))

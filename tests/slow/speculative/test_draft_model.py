"""A draft model: each token is computed once, in batches; drafts use the target's noise."""

from itertools import product

import pytest

from gencli.errors import ModelError
from gencli.models.other_runners import FakeRunner
from gencli.runtime.model_loading import ModelChoice, load
from tests.engine.harness import Watched
from tests.speculative.cases import WIDTH, outcomes
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
    short, stood = outcomes(rows(1), drafter=Limited(FakeRunner(WIDTH, context=20)))
    assert short == outcomes(rows(1))[0]
    assert 0 < stood < 20


def test_a_pass_for_each_place_serves_all_texts_and_no_committed_token_is_read_twice():
    for seed in (0, 1):  # the second is another model than the target
        runner = Watched(WIDTH, seed)
        found, _ = outcomes(rows(3), drafter=Limited(runner), max_batch=3)
        read = sum(len(feed.tokens) for feeds in feeds_of(runner) for feed in feeds)
        drafts_fed = sum(len(feeds) for feeds in feeds_of(runner))
        assert read <= sum(3 + len(ids) for ids, _ in found.values()) + drafts_fed, seed
    runner = Watched(WIDTH)
    outcomes(rows(5), drafter=Limited(runner), max_batch=5)
    # After the first text's round, which reads the prompt that all have.
    assert all(len(feeds) == 5 for feeds in feeds_of(runner)[4:-8])

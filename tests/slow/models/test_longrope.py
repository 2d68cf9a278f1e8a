"""Long-rope models: a lane's own text decides on its rotary factors, not its chunks or neighbours."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.hf_runner import HFRunner
from gencli.models.kv.model_calls import OwnCacheLanes
from tests.models.fresh import FreshRunner
from tests.models.loops import Job, decode, decode_with_drafts
from tests.models.test_longrope import COUNT, PROMPTS, Case, case, jobs, model, texts
from tests.models.tiny_models import LONG_ROPE, SWITCH


@pytest.mark.parametrize("case", LONG_ROPE, indirect=True)
def test_fresh_passes_are_what_generate_does(model: Any, texts: list[list[int]]) -> None:
    """For Phi-3 and its relatives; generate() goes on with the keys of other factors for all other models."""
    for prompt, text in zip(PROMPTS, texts, strict=True):
        if len(prompt) + COUNT <= SWITCH or len(prompt) > SWITCH or model.config.model_type != "llama":
            ids = torch.tensor([prompt])
            mask = torch.ones_like(ids)
            whole = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=COUNT)
            assert whole[0, len(prompt) :].tolist() == text


def test_chunks_and_neighbours_change_nothing(case: Case, texts: list[list[int]]) -> None:
    runner = case.runner()
    for chunk in (5, 16, 10**6):
        assert decode(runner, jobs(), count=COUNT, chunk=chunk) == texts, chunk
    alone = [decode(runner, [Job(0, list(prompt))], count=COUNT, chunk=16)[0] for prompt in PROMPTS]
    assert alone == texts


def test_drafts_that_reach_over_the_switch_change_nothing(case: Case, texts: list[list[int]]) -> None:
    for num_drafts in (1, 4):
        assert decode_with_drafts(case.runner(), jobs(), texts, num_drafts=num_drafts) == texts, num_drafts


@pytest.mark.parametrize("case", LONG_ROPE, indirect=True)
def test_lanes_with_caches_of_their_own_do_as_well(model: Any, texts: list[list[int]]) -> None:
    model.hf_device_map = {"first": 0, "rest": 1}
    runner = HFRunner(model, max_lanes=len(PROMPTS))
    del model.hf_device_map
    assert isinstance(runner._lanes._inner, OwnCacheLanes)
    assert decode(runner, jobs(), count=COUNT, chunk=16) == texts
    assert decode_with_drafts(runner, jobs(), texts, num_drafts=4) == texts


def test_what_is_forked_and_shortened_may_have_been_read_with_other_factors(case: Case) -> None:
    for held, kept in ((64, 20), (40, 20), (64, SWITCH), (64, SWITCH + 2)):
        rows = []
        for one in (case.runner(3), FreshRunner(case.model)):
            one.forward(StepPlan((Feed(0, 0, tuple(PROMPTS[5][:held]), 0),)))
            one.fork(0, 2)
            one.truncate(2, kept)
            feeds = (Feed(0, held, (1, 2, 3), 3), Feed(2, kept, (4, 5, 6), 3))
            both = one.forward(StepPlan(feeds)), one.forward(StepPlan((Feed(2, kept + 3, (7,)),)))
            rows.append(torch.cat(both))
        torch.testing.assert_close(*rows, atol=1e-4, rtol=0)

"""The text through the runner is the library's own, whatever shares the step."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from gencli.core.step import Feed, StepPlan
from gencli.errors import ModelError
from gencli.models.decoder.decoder import Decoder
from gencli.models.decoder.runner import DecoderRunner
from gencli.models.files.library import transformers_version
from gencli.models.hf import HFRunner
from tests.models.loops import Job, after_rollback, decode, decode_with_drafts
from tests.models.native import native_decoder
from tests.models.tiny_models import (
    CONFIGS,
    NATIVE_CONFIGS,
    NO_ROLLBACK,
    PROMPTS,
    build,
    build_native,
    continued,
)

COUNT = 64
OWN_CACHE = {"mamba", "rwkv", "falcon_h1", "bamba", "stablelm"}
if transformers_version() < (5, 24):  # whose code of GPT-J takes no function and mask of ours
    OWN_CACHE.add("gptj")


@dataclass(frozen=True)
class Case:
    kind: str
    model: Any
    prompts: list[list[int]]
    texts: list[list[int]]

    decoder: Decoder | None = None

    def runner(self) -> HFRunner | DecoderRunner:
        if self.decoder is not None:
            return DecoderRunner(self.decoder, max_lanes=8)
        return HFRunner(self.model, name=self.kind, max_lanes=8)

    def jobs(self, lanes: list[int] | None = None, *, every: int = 0) -> list[Job]:
        return [
            Job(lane, list(prompt), admitted=index * every)
            for index, (lane, prompt) in enumerate(zip(lanes or [0, 1, 2, 3], self.prompts, strict=True))
        ]


@pytest.fixture(scope="module", params=[*CONFIGS, *(f"native-{kind}" for kind in NATIVE_CONFIGS)])
def case(request: pytest.FixtureRequest) -> Case:
    """A model, four prompts, and generate()'s greedy texts."""
    kind = request.param.removeprefix("native-")
    if kind == request.param:
        model = build(kind)
        return Case(kind, model, PROMPTS, continued(model, COUNT))
    model = build_native(kind)
    return Case(kind, model, PROMPTS, continued(model, COUNT), native_decoder(model))


def test_the_texts_are_varied_enough_to_mean_something(case: Case) -> None:
    assert min(len(set(text)) for text in case.texts) >= 10


def test_the_way_lanes_are_run_is_the_expected_one(case: Case) -> None:
    spec = case.runner().spec
    if case.decoder is not None:
        assert spec.can_rollback
        assert spec.notices == ()
        return
    assert bool(spec.notices) == (case.kind in OWN_CACHE)
    assert spec.can_rollback == (case.kind not in NO_ROLLBACK)


def test_four_lengths_in_one_batch(case: Case) -> None:
    assert decode(case.runner(), case.jobs(), count=COUNT) == case.texts


def test_each_alone_in_reused_lanes(case: Case) -> None:
    runner = case.runner()
    for lane, prompt, text in zip([0, 0, 2, 0], case.prompts, case.texts, strict=True):
        assert decode(runner, [Job(lane, list(prompt))], count=COUNT) == [text]


def test_batches_of_two_and_eight_in_any_order(case: Case) -> None:
    runner = case.runner()
    pair = [Job(5, list(case.prompts[3])), Job(1, list(case.prompts[0]))]
    assert decode(runner, pair, count=COUNT) == [case.texts[3], case.texts[0]]
    eight = [*case.jobs([7, 6, 5, 4]), *case.jobs([0, 2, 1, 3])][::-1]
    assert decode(runner, eight, count=COUNT) == [*case.texts, *case.texts][::-1]


@pytest.mark.parametrize("lanes", [[0, 1, 3, 4], [7, 0, 5, 1]], ids=["one gap", "far apart"])
def test_idle_lanes_between_others_change_nothing(case: Case, lanes: list[int]) -> None:
    assert decode(case.runner(), case.jobs(lanes), count=COUNT) == case.texts


def test_prompts_in_chunks(case: Case) -> None:
    assert decode(case.runner(), case.jobs(), count=COUNT, chunk=5) == case.texts


def test_lanes_join_while_others_decode(case: Case) -> None:
    jobs = case.jobs([2, 0, 3, 1], every=7)
    assert decode(case.runner(), jobs, count=COUNT, chunk=9) == case.texts


def test_growing_buffers_keep_what_lanes_hold(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gencli.models.kv.buffers.STEP", 4)
    assert decode(case.runner(), case.jobs([6, 0, 4, 2], every=5), count=COUNT) == case.texts


@pytest.mark.parametrize("num_drafts", [1, 3])
def test_rejected_drafts_leave_no_trace(case: Case, num_drafts: int) -> None:
    refused = pytest.raises(ModelError, match="cannot forget") if case.kind in NO_ROLLBACK else nullcontext()
    runner = case.runner()
    with refused:
        assert decode_with_drafts(runner, case.jobs(), case.texts, num_drafts=num_drafts) == case.texts


@pytest.mark.parametrize("num_kept", [0, 2, 4])
def test_after_rejected_drafts_logits_are_those_of_a_fresh_prefill(case: Case, num_kept: int) -> None:
    """Of four drafts so many stand; what follows reads the lane as if the others had never been in it."""
    if case.kind in NO_ROLLBACK:
        pytest.skip("It takes no drafts, as its spec says.")
    runner, other = case.runner(), case.runner()
    found, fresh = after_rollback(runner, other, case.prompts, case.texts, num_kept=num_kept)
    torch.testing.assert_close(found, fresh, atol=1e-5, rtol=0)


def test_several_tokens_can_follow_what_a_lane_has_read(case: Case) -> None:
    runner = case.runner()
    starts = [len(prompt) for prompt in case.prompts]
    runner.forward(StepPlan(tuple(Feed(lane, 0, tuple(prompt)) for lane, prompt in enumerate(case.prompts))))
    for first, last in [(0, 9), (9, 40)]:
        feeds = [
            Feed(lane, start + first, tuple(text[first:last]), 4)
            for lane, (start, text) in enumerate(zip(starts, case.texts, strict=True))
        ]
        rows = runner.forward(StepPlan(tuple(feeds))).argmax(-1).view(-1, 4).tolist()
        assert rows == [text[last - 3 : last + 1] for text in case.texts]


def test_a_fork_goes_on_alone(case: Case) -> None:
    runner = case.runner()
    prompt, text = case.prompts[2], case.texts[2]
    runner.forward(StepPlan((Feed(0, 0, tuple(prompt)),)))
    runner.fork(0, 3)
    runner.release(0)
    other = [*case.prompts[1], *case.texts[1][:3]]
    forked = Job(3, [text[0]], held=len(prompt), text=text[:1])
    jobs = [Job(0, list(other)), forked]
    assert decode(runner, jobs, count=COUNT - 3) == [case.texts[1][3:], text[: COUNT - 3]]

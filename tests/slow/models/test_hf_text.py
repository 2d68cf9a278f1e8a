"""The text through the runner is the library's own, whatever shares the step.

In a batch that shares beginnings, every row has the token ids that it has alone.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch

from gencli.core.events import Error, Token
from gencli.core.request import Feed, Limits, Request, StepPlan
from gencli.engine.engine import Engine
from gencli.errors import ModelError
from gencli.models.decoder.decoder import Decoder, DecoderRunner
from gencli.models.files.model_card import transformers_version
from gencli.models.hf_runner import HFRunner
from gencli.models.kv.lane_buffers import LaneRunner
from gencli.runtime.model_loading import ModelChoice, load
from gencli.text.tokenizer import ByteTokenizer, Tokenizer
from processors.chain import Chain
from tests.models.loops import Job, after_rollback, decode, decode_with_drafts
from tests.models.native import native_decoder
from tests.models.tiny_models import NO_ROLLBACK, PROMPTS, build, build_native, continued

COUNT = 48
FEWER = 20  # tokens of a text in the suite, behind the window in each text; nightly has all
OWN_CACHE = {"mamba", "rwkv", "falcon_h1", "bamba", "stablelm"}
if transformers_version() < (5, 24):  # whose code of GPT-J takes no function and mask of ours
    OWN_CACHE.add("gptj")
# One of each way to attend: to all, to a window, with experts, by a state, with sinks.
SUITE = ["llama", "gemma3", "qwen3_moe", "mamba", "native-llama", "native-gemma3", "native-gpt_oss"]
# What shares the steps: (lanes, steps between admissions, tokens of a chunk).
SCHEDULES = {
    "one batch": ([0, 1, 2, 3], 0, COUNT),
    "an idle lane between them": ([0, 1, 3, 4], 0, COUNT),
    "lanes far apart": ([7, 0, 5, 1], 0, COUNT),
    "chunks": ([0, 1, 2, 3], 0, 5),
    "chunks in lanes far apart": ([7, 0, 5, 1], 0, 5),
    "joining while others decode": ([2, 0, 3, 1], 7, 9),
}


@dataclass(frozen=True)
class Case:
    """A model, four prompts, and generate()'s greedy texts."""

    kind: str
    model: Any
    prompts: list[list[int]]
    texts: list[list[int]]
    decoder: Decoder | None = None

    def runner(self) -> HFRunner | DecoderRunner:
        if self.decoder is not None:
            return DecoderRunner(self.decoder, max_lanes=8)
        return HFRunner(self.model, name=self.kind, max_lanes=8)

    def jobs(self, lanes: Sequence[int] = range(4), *, every: int = 0) -> list[Job]:
        return [
            Job(lane, list(prompt), admitted=index * every)
            for index, (lane, prompt) in enumerate(zip(lanes, self.prompts, strict=True))
        ]


@cache
def case_of(kind: str) -> Case:
    if not kind.startswith("native-"):
        model = build(kind)
        return Case(kind, model, PROMPTS, continued(model, COUNT))
    model = build_native(kind.removeprefix("native-"))
    return Case(kind, model, PROMPTS, continued(model, COUNT), native_decoder(model))


def check_spec(case: Case) -> None:
    """Texts are varied enough to mean something, and lanes are run as expected."""
    assert min(len(set(text)) for text in case.texts) >= 10
    spec = case.runner().spec
    assert bool(spec.notices) == (case.kind in OWN_CACHE)
    assert spec.can_rollback == (case.kind not in NO_ROLLBACK)


def check_schedules(case: Case, names: Collection[str] = SCHEDULES, count: int = COUNT) -> None:
    """A text is the library's own whatever shares its steps, and whatever its lane has held."""
    texts = [text[:count] for text in case.texts]
    for name in names:
        lanes, every, chunk = SCHEDULES[name]
        decoded = decode(case.runner(), case.jobs(lanes, every=every), count=count, chunk=chunk)
        assert decoded == texts, name
    runner = case.runner()
    for index in (3, 0):  # a short text where a long one was
        alone = decode(runner, [Job(0, list(case.prompts[index]))], count=count)
        assert alone == [texts[index]], "alone in a reused lane"
    pair = [Job(5, list(case.prompts[3])), Job(1, list(case.prompts[0]))]
    assert decode(runner, pair, count=count) == [texts[3], texts[0]]
    eight = [*case.jobs([7, 6, 5, 4]), *case.jobs([0, 2, 1, 3])][::-1]
    assert decode(runner, eight, count=count) == [*texts, *texts][::-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gencli.models.kv.lane_buffers.STEP", 4)
        decoded = decode(case.runner(), case.jobs([6, 0, 4, 2], every=5), count=count)
        assert decoded == texts, "growing buffers"


def check_drafts(case: Case) -> None:
    """Rejected drafts leave no trace, in texts and in logits."""
    for num_drafts in (1, 3):
        runner = case.runner()
        if case.kind in NO_ROLLBACK:
            with pytest.raises(ModelError, match="cannot forget"):
                decode_with_drafts(runner, case.jobs(), case.texts, num_drafts=num_drafts)
        else:
            assert decode_with_drafts(runner, case.jobs(), case.texts, num_drafts=num_drafts) == case.texts
    for num_kept in () if case.kind in NO_ROLLBACK else (0, 2, 4):
        runner, other = case.runner(), case.runner()
        found, fresh = after_rollback(runner, other, case.prompts, case.texts, num_kept=num_kept)
        torch.testing.assert_close(found, fresh, atol=1e-5, rtol=0)


def check_continuation(case: Case) -> None:
    """Several tokens can follow what a lane has read, and a fork goes on alone."""
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

    runner = case.runner()
    prompt, text = case.prompts[2], case.texts[2]
    runner.forward(StepPlan((Feed(0, 0, tuple(prompt)),)))
    runner.fork(0, 3)
    runner.release(0)
    other = [*case.prompts[1], *case.texts[1][:3]]
    jobs = [Job(0, list(other)), Job(3, [text[0]], held=len(prompt), text=text[:1])]
    assert decode(runner, jobs, count=COUNT - 3) == [case.texts[1][3:], text[: COUNT - 3]]


@pytest.mark.parametrize("kind", SUITE)
def test_texts_are_those_of_the_library_whatever_shares_the_steps(kind: str) -> None:
    check_spec(case_of(kind))
    check_schedules(case_of(kind), ("chunks in lanes far apart", "joining while others decode"), FEWER)


@pytest.mark.parametrize("kind", SUITE)
def test_rejected_drafts_leave_no_trace(kind: str) -> None:
    check_drafts(case_of(kind))


@pytest.mark.parametrize("kind", SUITE)
def test_several_tokens_can_follow_and_a_fork_goes_on_alone(kind: str) -> None:
    check_continuation(case_of(kind))


def ids_of(engine: Engine, requests: list[Request]) -> dict[str, tuple[int, ...]]:
    """The ids of each request; none of them fails."""
    ids: dict[str, tuple[int, ...]] = {request.id: () for request in requests}
    for request in requests:
        engine.submit(request)
    for event in engine.run():
        assert not isinstance(event, Error)
        if isinstance(event, Token):
            ids[event.request] += event.ids
    return ids


def requests_for(width: int, count: int) -> list[Request]:
    """Three beginnings of 40 tokens and rows without one; greedy and drawn in turns."""
    draw = random.Random(0)

    def words(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw.choices(range(4, width), k=draw.randint(least, most)))

    heads = [words(40, 40) for _ in range(3)] + [()]
    chains = [Chain(), Chain.parse("temperature=0.9 | top_p=0.95")]
    return [
        Request(
            str(row),
            heads[row % 4] + words(1, 60),
            chains[row % 2],
            seed=row,
            draw="gumbel" if row % 2 else "greedy",
            limits=Limits(draw.randint(1, 12)),
        )
        for row in range(count)
    ]


def runner_of(kind: str, lanes: int) -> tuple[LaneRunner, Tokenizer]:
    """A model of its own with so many lanes."""
    if kind != "tiny":
        return HFRunner(build(kind), max_lanes=lanes), ByteTokenizer()
    loaded = load(ModelChoice("tiny", dtype="float32", max_batch=lanes))
    assert isinstance(loaded.runner, LaneRunner)
    return loaded.runner, loaded.tokenizer


def check_ids(kind: str, count: int) -> None:
    (together, tokenizer), (single, _) = runner_of(kind, 16), runner_of(kind, 1)
    requests = requests_for(min(together.spec.vocab_size, tokenizer.vocab_size), count)
    batch = ids_of(Engine(together, tokenizer, max_batch=16), requests)
    alone = Engine(single, tokenizer, max_batch=1, share_prefixes=False)
    assert batch == {key: ids for request in requests for key, ids in ids_of(alone, [request]).items()}


def test_ids_are_those_of_the_row_alone() -> None:
    check_ids("tiny", 24)
    check_ids("llama", 24)

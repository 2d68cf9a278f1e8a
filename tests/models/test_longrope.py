"""Long-rope models: a lane's own text decides on its rotary factors, not its chunks or neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import Decoder, DecoderRunner
from gencli.models.hf_runner import HFRunner
from tests.models.fresh import FreshRunner
from tests.models.loops import Job, decode
from tests.models.native import native_decoder
from tests.models.tiny_models import LONG_ROPE, SWITCH, VOCAB, long_rope

COUNT = 12
LENGTHS = (20, SWITCH - 2, SWITCH - 1, SWITCH, SWITCH + 1, 64)
_NOISE = torch.Generator().manual_seed(7)
PROMPTS = [torch.randint(0, VOCAB, (length,), generator=_NOISE).tolist() for length in LENGTHS]


@dataclass(frozen=True)
class Case:
    model: Any
    decoder: Decoder | None = None

    def runner(self, max_lanes: int = len(PROMPTS)) -> HFRunner | DecoderRunner:
        if self.decoder is not None:
            return DecoderRunner(self.decoder, max_lanes=max_lanes)
        return HFRunner(self.model, max_lanes=max_lanes)


@pytest.fixture(scope="module", params=[*LONG_ROPE, "native-phi3", "native-llama"])
def case(request: pytest.FixtureRequest) -> Case:
    model = long_rope(request.param.removeprefix("native-"))
    return Case(model, native_decoder(model) if request.param.startswith("native-") else None)


@pytest.fixture(scope="module")
def model(case: Case) -> Any:
    return case.model


@pytest.fixture(scope="module")
def texts(model: Any) -> list[list[int]]:
    """What fresh passes choose greedily behind each prompt."""
    runner = FreshRunner(model)
    return [decode(runner, [Job(0, list(prompt))], count=COUNT)[0] for prompt in PROMPTS]


def jobs() -> list[Job]:
    return [Job(lane, list(prompt)) for lane, prompt in enumerate(PROMPTS)]


def test_a_chunk_that_tells_its_text_s_length_is_read_once() -> None:
    model, fed = long_rope("phi3"), []
    runner = HFRunner(model, max_lanes=1)
    hook = model.model.embed_tokens.register_forward_hook(lambda _, args, out: fed.append(args[0].numel()))
    prompt = tuple(PROMPTS[5])
    for start, num_logits in ((0, 0), (16, 0), (32, 0), (48, 1)):
        tokens = prompt[start : start + 16]
        runner.forward(StepPlan((Feed(0, start, tokens, num_logits, text_length=0 if num_logits else 64),)))
    hook.remove()
    assert fed == [16] * 4


def test_two_runners_on_one_model_leave_each_other_alone() -> None:
    model = long_rope("phi3")
    target, first = HFRunner(model), HFRunner(model).first_layers(1, max_lanes=1)
    feed = StepPlan((Feed(0, 0, tuple(PROMPTS[5][:16]), 1, text_length=0),))
    expected = FreshRunner(model).forward(feed)
    first.forward(StepPlan((Feed(0, 0, tuple(PROMPTS[5])),)))
    torch.testing.assert_close(target.forward(feed), expected, atol=1e-4, rtol=0)

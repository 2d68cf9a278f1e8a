"""Architectures that no list names: what they do differently is found when they are loaded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from gencli.errors import ModelError
from gencli.models.hf_runner import HFRunner
from gencli.models.kv.shared_cache import SlotLanes
from tests.models.fresh import FreshRunner
from tests.models.loops import Job, decode
from tests.models.tiny_models import CONFIGS, PROMPTS, build


class RemembersCalls(hf.LlamaForCausalLM):
    """Is another model at every call."""

    calls = 0

    def forward(self, *args: Any, **rest: Any) -> Any:
        self.calls += 1
        out = super().forward(*args, **rest)
        out.logits = out.logits.roll(self.calls, -1)
        return out


class DrawsNumbers(hf.LlamaForCausalLM):
    def forward(self, *args: Any, **rest: Any) -> Any:
        torch.rand(3)
        return super().forward(*args, **rest)


def made(kind: type[Any]) -> Any:
    torch.manual_seed(0)
    return kind(CONFIGS["llama"]()).eval()


def unknown(model: Any) -> Any:
    """The model as one whose code does not come with the library, so that it is tried."""
    model.__class__ = type("Unknown", (type(model),), {"__module__": __name__})
    return model


def num_passes(model: Any) -> list[int]:
    """The tokens of each pass while its lanes are chosen."""
    fed: list[int] = []
    embed = model.get_input_embeddings()
    hook = embed.register_forward_hook(lambda _, args, out: fed.append(args[0].numel()))
    lanes: Any = HFRunner(model)._lanes
    hook.remove()
    assert not [buffer for buffer in lanes._cache.store.buffers if buffer._data.numel()]
    return fed


def test_a_model_that_cannot_be_run_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match="llama models cannot be run: its logits are off by"):
        HFRunner(made(RemembersCalls))
    config = hf.OpenAIGPTConfig(vocab_size=9, n_embd=32, n_layer=1, n_head=2, n_positions=16)
    with pytest.raises(ModelError, match="openai-gpt models cannot be run: .* hands back no cache"):
        HFRunner(hf.AutoModelForCausalLM.from_config(config))


def test_the_check_is_four_small_passes_and_none_for_the_librarys_architectures() -> None:
    fed = num_passes(unknown(build("llama")))
    assert len(fed) == 4
    assert sum(fed) < 40
    assert num_passes(build("llama")) == []


def test_random_numbers_are_what_they_were() -> None:
    model = made(DrawsNumbers)
    before = torch.get_rng_state()
    HFRunner(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_rounding_and_numbers_that_are_not_finite_are_no_fault_of_the_lanes() -> None:
    for kind, dtype in (("llama", torch.bfloat16), ("gemma2", torch.float16), ("qwen3_moe", torch.bfloat16)):
        assert isinstance(HFRunner(unknown(build(kind)).to(dtype))._lanes, SlotLanes), (kind, dtype)
    model = unknown(build("llama"))
    model.lm_head.weight.data[5] = torch.nan
    assert isinstance(HFRunner(model)._lanes, SlotLanes)


def test_dynamic_rope_lanes_share_a_pass_up_to_the_end_of_the_context() -> None:
    """Their factors change behind the context only."""
    config = CONFIGS["llama"]()
    config.max_position_embeddings = 64
    config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(config).eval()
    runner, fresh, prompts = HFRunner(model), FreshRunner(model), [PROMPTS[2], [*PROMPTS[3], *PROMPTS[1]]]
    assert not runner.spec.notices
    expected = [decode(fresh, [Job(0, list(prompt))], count=17)[0] for prompt in prompts]
    assert (
        decode(runner, [Job(lane, list(prompt)) for lane, prompt in enumerate(prompts)], count=17) == expected
    )

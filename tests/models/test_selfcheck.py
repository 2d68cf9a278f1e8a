"""Architectures that no list names: what they do differently is found when they are loaded."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest
import torch
import transformers as hf

from gencli.core.events import Error, Finish
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.errors import ModelError
from gencli.models.hf import HFRunner
from gencli.models.kv.per_request import OwnCacheLanes
from gencli.models.kv.shared import SlotLanes
from gencli.text.tokenizer import ByteTokenizer
from processors.chain import Chain
from tests.engine.harness import Scripted
from tests.models.fresh import FreshRunner
from tests.models.loops import Job, decode
from tests.models.tiny_models import CONFIGS, PROMPTS, build

# The name of the cache in the installed transformers. Code of models' own may go on naming it as before.
CACHE = "cache" if "cache" in signature(hf.LlamaForCausalLM.forward).parameters else "past_key_values"


class CountsPlaces(hf.LlamaForCausalLM):
    """Takes positions from what the cache holds, one number for all lanes."""

    def forward(
        self, input_ids: Any, past_key_values: Any = None, position_ids: Any = None, **rest: Any
    ) -> Any:
        held = past_key_values.get_seq_length() if past_key_values is not None else 0
        places = torch.arange(held, held + input_ids.shape[1])[None].expand(len(input_ids), -1)
        return super().forward(input_ids, position_ids=places, **{CACHE: past_key_values}, **rest)


class KeepsASum(hf.LlamaForCausalLM):
    """Keeps a state beside its keys and values, which cropping them does not change."""

    def forward(self, input_ids: Any, past_key_values: Any = None, **rest: Any) -> Any:
        past_key_values = hf.DynamicCache(config=self.config) if past_key_values is None else past_key_values
        sums = getattr(past_key_values, "state", 0) + input_ids.double().cumsum(1)
        out = super().forward(input_ids, **{CACHE: past_key_values}, **rest)
        out[CACHE] = past_key_values
        past_key_values.state = sums[:, -1:]
        logits = torch.arange(self.config.vocab_size) * sums[..., None]
        out.logits = out.logits + logits.sin()[:, -out.logits.shape[1] :].float()
        return out


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


def requests(**rest: Any) -> list[Request]:
    """Two prompts that begin alike, and one that does not."""
    prompts = (PROMPTS[3], [*PROMPTS[3][:30], 5, 6], PROMPTS[1])
    chain = Chain.parse("temperature=0.7")
    return [
        Request(str(i), tuple(prompt), chain=chain, seed=i, limits=Limits(8), **rest)
        for i, prompt in enumerate(prompts)
    ]


def texts(runner: Any, drafter: Any = None, **options: Any) -> dict[Any, str]:
    on = Engine(runner, ByteTokenizer(), drafter=drafter, **options)
    for one in requests(n=3):
        on.submit(one)
    events = [event for event in on.run() if isinstance(event, Finish | Error)]
    assert not [event for event in events if isinstance(event, Error)]
    return {(event.request, event.sample): event.text for event in events}


@pytest.mark.parametrize(
    ("make", "lanes", "can_rollback"),
    [
        (lambda: build("llama"), SlotLanes, True),
        (lambda: build("doge"), SlotLanes, True),
        (lambda: build("rwkv"), OwnCacheLanes, False),
        (lambda: made(CountsPlaces), OwnCacheLanes, True),
        (lambda: made(KeepsASum), OwnCacheLanes, False),
    ],
    ids=["llama", "doge", "rwkv", "counts places", "keeps a sum"],
)
def test_samples_shared_beginnings_and_drafts_are_those_of_fresh_passes(
    make: Any, lanes: type[Any], can_rollback: bool
) -> None:
    model = make()
    runner = HFRunner(model)
    assert (type(runner._lanes), runner.spec.can_rollback) == (lanes, can_rollback)
    assert bool(runner.spec.notices) == (lanes is OwnCacheLanes)
    expected = texts(FreshRunner(model), share_prefixes=False)
    assert texts(runner) == expected
    assert texts(runner, step_tokens=16, max_batch=2) == expected
    answers = {one.prompt_ids: tuple(expected[one.id, 0].encode()) for one in requests()}
    drafter = Scripted(answers)
    assert texts(runner, drafter) == expected
    assert bool(drafter.proposed) == can_rollback


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

"""Loading: every fault has one message, and what loads is what was stored.

Architectures that no list names: what they do differently is found when they are loaded.
"""

from __future__ import annotations

import warnings
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from gencli.core.events import Error, Finish
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.models.hf_runner import HFRunner
from gencli.models.kv.model_calls import OwnCacheLanes
from gencli.models.kv.shared_cache import SlotLanes
from gencli.text.tokenizer import ByteTokenizer
from processors.chain import Chain
from tests.engine.harness import Scripted
from tests.models.fresh import FreshRunner
from tests.models.test_hf_runner import edit_weights, folder, made, saved
from tests.models.tiny_models import PROMPTS, build


def test_nothing_reaches_the_terminal(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    edit_weights(folder, lambda weights: weights.update(stray=torch.zeros(1)))
    with warnings.catch_warnings(action="error"):
        notices = HFRunner.load(str(folder)).spec.notices
    assert notices == ("1 tensors of the checkpoint are not used, such as stray",)
    assert capfd.readouterr() == ("", "")


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


def requests(**rest: Any) -> list[Request]:
    """Two prompts that begin alike, and one that does not."""
    prompts = (PROMPTS[3], [*PROMPTS[3][:30], 5, 6], PROMPTS[1])
    chain = Chain.parse("temperature=0.7")
    return [
        Request(str(i), tuple(prompt), chain=chain, seed=i, limits=Limits(5), **rest)
        for i, prompt in enumerate(prompts)
    ]


def texts(runner: Any, drafter: Any = None, **options: Any) -> dict[Any, str]:
    on = Engine(runner, ByteTokenizer(), drafter=drafter, **options)
    for one in requests(n=2):
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

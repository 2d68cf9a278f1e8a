"""What the Hugging Face runner promises beside the text."""

from __future__ import annotations

import pytest
import torch
import transformers as hf

from gencli.core.events import Error
from gencli.core.request import Feed, Guidance, Limits, Request, StepPlan
from gencli.engine.engine import Engine
from gencli.errors import ModelError
from gencli.models.hf_runner import HFRunner
from gencli.models.kv.lane_lengths import ContractError
from gencli.text.tokenizer import ByteTokenizer
from tests.models.loops import Job, decode
from tests.models.tiny_models import VOCAB, base, build


@pytest.fixture(params=["llama", "mamba"])
def runner(request: pytest.FixtureRequest) -> HFRunner:
    return HFRunner(build(request.param), max_lanes=4)


def feed(runner: HFRunner, *feeds: Feed) -> torch.Tensor:
    return runner.forward(StepPlan(feeds))


def test_rows_come_in_feed_order(runner: HFRunner) -> None:
    long, short = tuple(range(40)), (5, 6, 7)
    together = feed(
        runner, Feed(2, 0, long, 2), Feed(0, 0, short, 3), Feed(1, 0, short, 0), Feed(3, 0, long, 1)
    )
    assert together.shape == (6, VOCAB)
    torch.testing.assert_close(together[1], together[5])
    runner.release(0)
    torch.testing.assert_close(feed(runner, Feed(0, 0, short, 3)), together[2:5])
    for lane in range(4):
        runner.release(lane)
    assert feed(runner, Feed(2, 0, short, 0), Feed(0, 0, long, 0)).shape == (0, VOCAB)  # nothing is wanted
    assert feed(runner, Feed(2, 3, (3,), 1)).shape == (1, VOCAB)


def test_logits_can_be_edited_in_place(runner: HFRunner) -> None:
    first = feed(runner, Feed(0, 0, (1, 2)))
    first[:, 3] = -torch.inf
    feed(runner, Feed(0, 2, (4,)))
    assert first[0, 3] == -torch.inf
    with torch.inference_mode():
        feed(runner, Feed(0, 3, (4,))).zero_()


def test_contract_and_context_are_enforced(runner: HFRunner) -> None:
    feed(runner, Feed(0, 0, (1, 2)))
    with pytest.raises(ContractError, match="holds 2 tokens, the feed starts at 1"):
        feed(runner, Feed(0, 1, (1,)))
    with pytest.raises(ModelError, match=f"Token id {VOCAB} is unknown"):
        feed(runner, Feed(0, 2, (VOCAB,)))
    if runner.spec.context < 10**6:
        with pytest.raises(ContractError, match="exceed the context"):
            feed(runner, Feed(1, 0, (1,) * (runner.spec.context + 1)))
    runner.truncate(0, 2)  # keeping all always works
    with pytest.raises(ContractError, match="cannot keep 3"):
        runner.truncate(0, 3)
    assert feed(runner, Feed(0, 2, (4,))).shape == (1, VOCAB)


def test_a_fork_replaces_what_the_target_held_and_empty_lanes_can_be_forked(runner: HFRunner) -> None:
    feed(runner, Feed(0, 0, (1, 2, 3)), Feed(1, 0, (9,) * 20))
    runner.fork(0, 1)
    both = feed(runner, Feed(0, 3, (4,)), Feed(1, 3, (4,)))
    torch.testing.assert_close(both[0], both[1])
    runner.fork(2, 3)
    runner.release(3)
    assert feed(runner, Feed(3, 0, (1,))).isfinite().all()


@pytest.mark.parametrize("way", ["released", "forked over", "rejected draft"])
def test_infinities_do_not_outlive_their_request(way: str) -> None:
    model = build("llama")
    runner = HFRunner(model, max_lanes=2)
    clean = feed(runner, Feed(0, 0, (1, 2, 3)), Feed(1, 0, (5, 6, 7, 8)))
    runner.release(0)
    runner.release(1)
    weights = model.model.embed_tokens.weight.data
    saved = weights[9].clone()
    weights[9] = torch.inf
    assert not feed(runner, Feed(0, 0, (9,) * 30)).isfinite().any()
    weights[9] = saved
    feed(runner, Feed(1, 0, (1,)))
    start, rest = 0, (1, 2, 3)
    if way == "rejected draft":
        runner.truncate(0, 0)
    if way == "forked over":
        runner.fork(1, 0)
        start, rest = 1, (2, 3)
    else:
        runner.release(0)
    runner.release(1)
    again = feed(runner, Feed(0, start, rest), Feed(1, 0, (5, 6, 7, 8)))
    torch.testing.assert_close(again, clean)


def test_lanes_of_a_model_that_counts_places_itself_are_scaled_by_their_own() -> None:
    config = hf.Llama4TextConfig(**base(no_rope_layers=[1, 0], floor_scale=8, attn_scale=0.5))
    torch.manual_seed(0)
    model = hf.Llama4ForCausalLM(config).eval()
    prompts = [[7] * 3, list(range(50))]
    alone = [decode(HFRunner(model), [Job(0, list(prompt))], count=12)[0] for prompt in prompts]
    jobs = [Job(lane, list(prompt)) for lane, prompt in enumerate(prompts)]
    assert decode(HFRunner(model), jobs, count=12) == alone


def test_several_logits_of_a_prompt_are_right_where_layers_share_keys_and_values() -> None:
    """Gemma 4 narrows such layers to the wanted places, and takes care only of attention named "sdpa"."""
    sizes = base(num_hidden_layers=2, head_dim=8, layer_types=["full_attention"] * 2)
    shared = {
        "num_kv_shared_layers": 1,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCAB,
    }
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(hf.Gemma4TextConfig(**sizes, **shared, global_head_dim=8))
    prompt = tuple(range(20))
    found = feed(HFRunner(model), Feed(0, 0, prompt, 7))
    with torch.inference_mode():
        torch.testing.assert_close(found, model(input_ids=torch.tensor([prompt])).logits[0, -7:])


TINY = {"vocab_size": 9, "hidden_size": 32, "num_hidden_layers": 1}
TINY |= {"intermediate_size": 64, "num_attention_heads": 2}


def test_models_that_cannot_be_continued_are_refused() -> None:
    for config, message in [
        (hf.BertConfig(**TINY), "not a decoder"),
        (hf.RecurrentGemmaConfig(**TINY, lru_width=32), "keeps its state inside"),
    ]:
        with pytest.raises(ModelError, match=message):
            HFRunner(hf.AutoModelForCausalLM.from_config(config))


def rows_held(runner: HFRunner) -> int:
    """Rows of the largest buffer of keys or values."""
    return max(buffer._data.shape[0] for buffer in runner._lanes._cache.store.buffers)


def test_buffers_have_rows_for_lanes_that_hold_something_whatever_their_numbers() -> None:
    runner = HFRunner(build("llama"), max_lanes=64)
    expected = feed(runner, Feed(0, 0, (1, 2, 3)), Feed(63, 0, (4, 5)))
    assert rows_held(runner) == 2
    runner.release(0)
    torch.testing.assert_close(feed(runner, Feed(32, 0, (1, 2, 3)), Feed(63, 2, (6,)))[0], expected[0])
    runner.fork(63, 7)
    after = feed(runner, Feed(63, 3, (7,)), Feed(7, 3, (7,)))
    torch.testing.assert_close(after[0], after[1])
    assert 3 <= rows_held(runner) <= 4  # they double
    alone = HFRunner(build("llama"), max_lanes=1)
    torch.testing.assert_close(feed(alone, Feed(0, 0, (4, 5, 6, 7)))[0], after[0])


def test_companions_take_rows_as_guided_samples_come() -> None:
    runner = HFRunner(build("llama"), max_lanes=64)
    on = Engine(runner, ByteTokenizer(), max_batch=32)
    for number, rows in ((1, 2), (3, 8)):  # what ends leaves a warm lane
        for place in range(number):
            guidance = Guidance(1.5, negative=(9, 8, 7))
            on.submit(Request(f"{place}", (1, 2, 3 + place), guidance=guidance, limits=Limits(4)))
        assert not [event for event in on.run() if isinstance(event, Error)]
        assert rows_held(runner) == rows

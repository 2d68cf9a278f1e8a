"""Two decode steps launch the same operations on the same shapes and addresses, as a CUDA graph needs."""

import pytest
import torch
import transformers as hf

from gencli.models.decoder.runner import DecoderRunner
from tests.engine.harness import engine, request
from tests.engine.test_device import LAUNCHES, Wide
from tests.engine.test_device_decoder import saved
from tests.models.tiny_models import NATIVE_CONFIGS
from tests.sham import sham_device
from tests.sham_cuda import differences
from tests.speculative.cases import WIDTH


def steady(seen, runner, chain, *, rows=4, first=10):
    """Two successive steps that decode `rows` texts."""
    on = engine(runner=runner, max_batch=rows, run_ahead=False)
    for c in "abcdefgh"[:rows]:
        on.submit(request(c * 5, key=c, chain=f"ignore_eos=true | {chain}", max_tokens=first + 9))
    for _ in range(first):
        on.step()
    seen.cut()
    steps = []
    for _ in range(2):
        on.step()
        steps.append(seen.cut())
    assert all(step.calls for step in steps)
    return steps


@pytest.mark.parametrize("chain", LAUNCHES)
def test_chain_and_draw_are_of_constant_shape(chain):
    with sham_device() as seen:
        found = differences(*steady(seen, Wide(), chain))
    assert found == []


@pytest.mark.parametrize(
    "kind", ["llama", "qwen3", "gemma2", "gemma3", "phi3", "granite", "mixtral", "qwen3_moe", "gpt_oss"]
)
def test_a_decode_step_of_the_decoder_is_of_constant_shape(tmp_path, kind):
    torch.manual_seed(1)
    config = NATIVE_CONFIGS[kind]()
    config.vocab_size = WIDTH
    hf.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with sham_device() as seen:
        runner = DecoderRunner.load(saved(tmp_path), dtype="float32", device="cuda", max_lanes=4)
        assert differences(*steady(seen, runner, "temperature=0")) == []


def test_what_differs_is_told_with_its_place():
    with sham_device() as seen:
        held = torch.zeros(4, device="cuda")
        steps = []
        for number in range(2):
            seen.cut()
            torch.ones(2 + number, device="cuda") * 2
            held = held + 1.5 + number
            steps.append(seen.cut())
    told = ["add, address", "add, value", "mul, shape", "ones, value"]
    assert differences(*steps) == [f"elsewhere: {one}" for one in told]

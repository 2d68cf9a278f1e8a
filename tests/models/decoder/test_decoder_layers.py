"""Norms whose weights are stored less one are computed in float32, as transformers does.

A decoder with quantized weights: close to the one in float32, and equal to itself in any company. Experts
in one stack have the values of experts that are computed one after the other. Experts in MXFP4 are widened
as transformers widens them, and read as any other weights.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError, UsageError
from gencli.models.backend import choose_backend
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.decoder_layers import DecoderLayer, StackedExperts
from gencli.models.decoder.products.dense_products import GroupedProduct, widened_mxfp4
from gencli.models.decoder.products.product_maker import KernelOptions, can_stack
from gencli.models.files.model_card import read_card
from gencli.models.model_memory import weight_bytes
from gencli.runtime.model_loading import ModelChoice, check_memory
from tests.models.cases import case
from tests.models.native import CPU, load_native, native_decoder
from tests.models.tiny_models import NATIVE_CONFIGS, PROMPTS, base, build_native
from tests.sham import CUDA, sham_device


def noisy(kind: str) -> Any:
    """A model in bfloat16 with random weights of norms, which are all zero or one otherwise."""
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(NATIVE_CONFIGS[kind]()).to(torch.bfloat16).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(weight, std=0.3)
    return model


def test_a_norm_with_an_offset_has_the_bits_of_transformers() -> None:
    for kind in ["gemma", "gemma2", "gemma3"]:
        with case(kind):
            model = noisy(kind)
            norm = native_decoder(model).norm
            given = torch.randn(7, 32).to(torch.bfloat16)
            reference = type(model.model.norm)(32, eps=norm.eps)
            reference.load_state_dict(model.model.norm.state_dict())
            assert norm.weight.dtype == torch.float32
            torch.testing.assert_close(norm(given), reference.to(torch.bfloat16)(given), rtol=0, atol=0)


def test_a_norm_without_an_offset_keeps_the_dtype_of_the_model() -> None:
    assert native_decoder(noisy("llama")).norm.weight.dtype == torch.bfloat16


QUANTIZED_PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [30, 31], [90] * 20]


def logits(runner: DecoderRunner, lanes: list[int]) -> list[torch.Tensor]:
    """The logits behind each lane's prompt and behind one more token, [2, V]."""
    first = runner.forward(StepPlan(tuple(Feed(lane, 0, tuple(QUANTIZED_PROMPTS[lane])) for lane in lanes)))
    more = runner.forward(StepPlan(tuple(Feed(lane, len(QUANTIZED_PROMPTS[lane]), (3,)) for lane in lanes)))
    return list(torch.stack([first, more], 1))


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    model = build_native("llama")
    model.model.layers[1].mlp.down_proj.weight.data[3, 4] = torch.nan
    model.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.down_proj\.weight have values"):
        load_native(tmp_path, quantize="int8")


def test_weights_of_another_shape_are_refused_where_those_of_values_have_other_bits(tmp_path: Path) -> None:
    model = build_native("llama")
    for name in ("q_proj", "k_proj", "v_proj"):
        with case(name):
            changed = copy.deepcopy(model)
            part = getattr(changed.model.layers[1].self_attn, name)
            part.weight = torch.nn.Parameter(part.weight[:-8])
            changed.save_pretrained(tmp_path)
            with pytest.raises(ModelError, match=r"layers\.1\.self_attn\.v_proj\.weight have 56 outputs"):
                load_native(tmp_path, quantize="int4")


def test_a_token_has_the_same_bits_where_states_of_its_pass_are_read(tmp_path: Path) -> None:
    config = hf.Gemma3TextConfig(**base(hidden_size=96, head_dim=32, num_hidden_layers=4))
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config)
    for name, weight in model.named_parameters():
        if "norm" in name:  # some are behind its blocks
            torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(tmp_path)
    runner, plan = load_native(tmp_path, quantize="int8"), StepPlan((Feed(0, 0, tuple(range(16)), 16),))
    alone = runner.forward(plan)
    runner.release(0)
    assert torch.equal(runner.forward_layers(plan, range(4))[0], alone)


def test_another_number_format_is_refused(tmp_path: Path) -> None:
    build_native("llama").save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="`dtype` is bfloat16, but quantized weights"):
        load_native(tmp_path, quantize="int8", dtype="bfloat16")
    assert load_native(tmp_path, quantize="int8", dtype="float32").spec.dtype == torch.float32


def test_the_host_looks_up_experts_where_they_are_not_stacked() -> None:
    assert not can_stack(torch.float32, CPU, KernelOptions())
    with sham_device():
        ahead = [
            DecoderRunner(native_decoder(build_native("mixtral"), CUDA, stacks_experts=one)).spec
            for one in (False, True)
        ]
    assert [spec.can_run_ahead for spec in ahead] == [False, True]
    assert [spec.no_graphs for spec in ahead] == [
        "the host looks up which experts a token uses",
        "`cuda_graphs` is off",
    ]


def test_a_kernel_by_name_keeps_them_apart() -> None:
    pytest.importorskip("triton")
    with sham_device():
        assert can_stack(torch.bfloat16, CUDA, KernelOptions())
        assert not can_stack(torch.bfloat16, CUDA, KernelOptions(kernel="plain"))


def by_transformers(blocks: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # Imported here: the import takes a second, and tests are collected more often than this one runs.
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    return convert_moe_packed_tensors(blocks, scales, dtype=dtype)


def codes(outputs: int, inputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks and scales of four experts [4, out, in], whose numbers have the size of tiny weights."""
    noise = torch.Generator().manual_seed(outputs)
    blocks = torch.randint(0, 256, (4, outputs, inputs // 32, 16), generator=noise, dtype=torch.uint8)
    return blocks, torch.randint(122, 126, blocks.shape[:-1], generator=noise, dtype=torch.uint8)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with experts in MXFP4 and the rest in bfloat16, and the model of those numbers in float32."""
    folder = tmp_path_factory.mktemp("mxfp4")
    build_native("gpt_oss").bfloat16().save_pretrained(folder)
    model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tensors = load_file(folder / "model.safetensors")
    for number, layer in enumerate(model.model.layers):
        for name, sides in (("gate_up_proj", (128, 32)), ("down_proj", (32, 64))):
            whole = f"model.layers.{number}.mlp.experts.{name}"
            blocks, scales = codes(*sides)
            tensors |= {f"{whole}_blocks": blocks, f"{whole}_scales": scales}
            del tensors[whole]
            weight = by_transformers(blocks, scales, torch.float32)
            getattr(layer.mlp.experts, name).data = weight
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder, model


def test_every_code_and_scale_is_widened_as_transformers_does() -> None:
    blocks = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(1, 254, -1, -1)
    scales = torch.arange(254, dtype=torch.uint8).view(1, -1, 1).expand(-1, -1, 16)  # finite in float32
    for dtype in (torch.float32, torch.bfloat16):
        expected = by_transformers(blocks, scales, dtype)[0].t()
        assert torch.equal(widened_mxfp4(blocks[0], scales[0]).to(dtype), expected)


@torch.inference_mode()
def test_the_logits_are_those_of_transformers(saved: tuple[Path, Any]) -> None:
    folder, model = saved
    runner = load_native(folder, dtype="float32", max_lanes=len(PROMPTS))
    assert runner.spec.notices == ()
    feeds = tuple(Feed(lane, 0, tuple(prompt), len(prompt)) for lane, prompt in enumerate(PROMPTS))
    expected = torch.cat([model(torch.tensor([prompt])).logits[0] for prompt in PROMPTS])
    torch.testing.assert_close(runner.forward(StepPlan(feeds)), expected, rtol=1e-4, atol=1e-4)


def table(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_all_bytes_are_told_once_and_the_planned_memory_is_that_of_widened_weights(
    saved: tuple[Path, Any],
) -> None:
    (folder, model), told = saved, []
    load_native(folder, on_bytes=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] == sum(stored.nbytes for stored in table(folder).values())
    card = read_card(folder)
    assert (card.weights.stored, card.weights.parameters) == ("MXFP4", model.num_parameters())
    assert weight_bytes(card, torch.bfloat16, CPU) == 2 * (
        model.num_parameters() + model.lm_head.weight.numel()
    )


def test_a_model_that_does_not_fit_is_refused_though_it_is_quantized(saved: tuple[Path, Any]) -> None:
    choice = ModelChoice(str(saved[0]), dtype="bfloat16", device="cpu")
    with pytest.raises(ModelError, match=r"needs .* for its weights in bfloat16"):
        check_memory([choice], free=0)
    check_memory([choice], free=2**30)


def test_a_gpu_keeps_the_codes_and_computes_with_their_numbers(
    saved: tuple[Path, Any], tmp_path: Path
) -> None:
    folder, model = saved
    model.save_pretrained(tmp_path)
    rows, held, formats = [], [], []
    with sham_device():
        for one in (folder, tmp_path):
            runner = load_native(one, "cuda", dtype="float16", max_lanes=3)
            rows.append(torch.cat(logits(runner, [0, 1, 2])))
            formats.append(runner.spec.quantization)
            held.append(sum(stack.nbytes for layer in runner._decoder.layers for stack in stacks(layer)))
    assert torch.equal(*rows)
    assert formats == ["MXFP4", ""]
    numbers = read_card(folder).weights.codes
    assert held == [numbers * 17 // 32, numbers * 2]
    saved_bytes, whole = numbers * 2 - numbers * 17 // 32, 2 * model.num_parameters()
    assert weight_bytes(read_card(folder), torch.float16, torch.device("cuda")) == whole - saved_bytes


def stacks(layer: DecoderLayer) -> tuple[GroupedProduct, GroupedProduct]:
    assert isinstance(layer.mlp, StackedExperts)
    return layer.mlp.gate_up, layer.mlp.down


def test_codes_of_another_shape_are_refused(saved: tuple[Path, Any], tmp_path: Path) -> None:
    tensors = table(saved[0])
    name = "model.layers.1.mlp.experts.down_proj_blocks"
    tensors[name] = tensors[name].flatten(2)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((saved[0] / "config.json").read_text())
    with pytest.raises(ModelError, match=r"down_proj_blocks have the shape \[4, 32, 32\]"):
        load_native(tmp_path)


def test_another_method_and_unknown_settings_are_left_to_transformers(saved: tuple[Path, Any]) -> None:
    config = json.loads((saved[0] / "config.json").read_text())
    assert choose_backend("auto", config)[0] is not None
    for settings, reason in (
        ({"quant_method": "awq"}, "quantized by another program"),
        ({"quant_method": "mxfp4", "rotated": True}, "'rotated', which the decoder"),
    ):
        spec, why = choose_backend("auto", {**config, "quantization_config": settings})
        assert spec is None
        assert reason in why

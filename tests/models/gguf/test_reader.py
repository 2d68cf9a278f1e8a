"""A GGUF file runs as the model it was converted from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers as hf

from gencli.errors import ModelError
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.files.gguf_metadata import MODEL_TYPES
from gencli.models.files.gguf_weights import open_gguf
from tests.helpers.gguf_files import ARCHS, random_blocks, write_model
from tests.models.cases import case
from tests.models.loops import Job, decode
from tests.models.native import load_native
from tests.models.tiny_models import NATIVE_CONFIGS, PROMPTS, WINDOW, base, long_rope

CPU = torch.device("cpu")


def _gemma(config: Any, **more: Any) -> Callable[[], Any]:
    """A Gemma that a file can describe: its scale follows from the width of a head."""
    sizes = base(num_hidden_layers=4, head_dim=8, tie_word_embeddings=True, num_key_value_heads=4)
    return lambda: config(**{**sizes, **more})


_NEAR = {
    "query_pre_attn_scalar": 8,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}


AS_THEY_ARE = "llama qwen3 llama3 yarn linear biased phi3 olmo2 granite mixtral".split()


# What a file says of the other models of NATIVE_CONFIGS is all there is; these need values that one can hold.
CONFIGS = {
    **{kind: NATIVE_CONFIGS[kind] for kind in AS_THEY_ARE},
    "mistral": lambda: hf.MistralConfig(**base(sliding_window=None)),
    "qwen2": lambda: hf.Qwen2Config(**base(tie_word_embeddings=True)),
    "qwen3_moe": lambda: hf.Qwen3MoeConfig(
        **base(head_dim=16),
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        norm_topk_prob=True,
    ),
    "gemma": _gemma(hf.GemmaConfig),
    "gemma2": _gemma(hf.Gemma2Config, **_NEAR),
    "gemma3": _gemma(hf.Gemma3TextConfig, **_NEAR),
    "smollm3": lambda: hf.SmolLM3Config(**base(num_hidden_layers=4)),
}


def built(config: Any) -> Any:
    torch.manual_seed(3)
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    for name, weight in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            weight.data += 0.2 * torch.randn_like(weight)
    return model


def finish(writer: Any) -> None:
    """Write the file of a gguf.GGUFWriter."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load(model: Path, **options: Any) -> DecoderRunner:
    return load_native(model, **{"dtype": "float32", **options})


def texts(runner: DecoderRunner) -> list[list[int]]:
    """Greedy texts of 16 tokens, with one lane per prompt."""
    return decode(runner, [Job(lane, [*prompt]) for lane, prompt in enumerate(PROMPTS)], count=16)


def test_the_tests_convert_every_architecture() -> None:
    types = {CONFIGS[kind]().model_type for kind in CONFIGS}
    assert {ARCHS.get(one, one) for one in types} == set(MODEL_TYPES)


def test_long_rope_comes_from_tensors(tmp_path: Path) -> None:
    model = long_rope("phi3")
    model.save_pretrained(tmp_path)
    write_model(tmp_path / "model.gguf", model)
    ours, original = load(tmp_path / "model.gguf"), load(tmp_path)
    assert ours.spec.rope_switches == original.spec.rope_switches == (48,)
    assert texts(ours) == texts(original)


def test_sixteen_bits_are_read_as_they_are(tmp_path: Path) -> None:
    for kind, dtype in [("F16", torch.float16), ("BF16", torch.bfloat16)]:
        with case(kind, dtype):
            model = built(CONFIGS["llama"]()).to(dtype).float()
            model.save_pretrained(tmp_path)
            write_model(tmp_path / "model.gguf", model, kind)
            assert texts(load(tmp_path / "model.gguf")) == texts(load(tmp_path))


def check_quantized(tmp_path: Path, kind: str) -> None:
    """Such weights run as their widened numbers."""
    sizes = base(hidden_size=256, intermediate_size=256, num_attention_heads=4, head_dim=64)
    model = built(hf.LlamaConfig(**sizes))
    write_model(tmp_path / "model.gguf", model, kind)
    runner = load(tmp_path / "model.gguf")
    assert f"{kind} is widened to float32: 0.0 GiB" in runner.spec.notices
    _take(model, tmp_path / "model.gguf", kind)
    folder = tmp_path / "wide"
    model.save_pretrained(folder)
    assert texts(runner) == texts(load(folder))


def test_a_file_can_be_quantized_while_it_is_read(tmp_path: Path) -> None:
    model = built(hf.LlamaConfig(**base(hidden_size=64, intermediate_size=64)))
    model.save_pretrained(tmp_path)
    write_model(tmp_path / "model.gguf", model)
    ours = load(tmp_path / "model.gguf", quantize="int8")
    folder = load(tmp_path, quantize="int8")
    assert (ours.spec.quantization, ours.spec.notices) == ("int8", folder.spec.notices)
    assert texts(ours) == texts(folder)


def _take(model: Any, path: Path, kind: str) -> None:
    """Give the model the numbers of the file, as the package gguf reads them, heads in their own order."""
    parts = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"}
    parts |= {"attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj"}
    parts |= {"ffn_down": "mlp.down_proj"}
    own = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight"}
    weights = dict(model.named_parameters())
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.tensor_type.name != kind:
            continue
        wide = torch.from_numpy(np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type)))
        name = own.get(tensor.name)
        if name is None:
            _, layer, part, _ = tensor.name.split(".")
            name = f"model.layers.{layer}.{parts[part]}.weight"
            if part in ("attn_q", "attn_k"):
                wide = wide.view(-1, 32, 2, 256).swapaxes(1, 2).reshape(wide.shape)
        weights[name].data.copy_(wide)


def check_slices(tmp_path: Path, kind: str) -> None:
    path, rows = tmp_path / "model.gguf", 17000  # more than one slice of 256 columns
    writer = gguf.GGUFWriter(path, "qwen2")
    number = gguf.GGMLQuantizationType[kind]
    blocks = random_blocks(kind, (rows, 256))
    writer.add_tensor("output.weight", blocks, raw_dtype=number)
    finish(writer)
    seen: list[int] = []
    with open_gguf(path, torch.float32, CPU, lambda done, total: seen.append(done)) as reader:
        found = reader.read("lm_head.weight", (rows, 256))
        assert reader.unread == set()
    assert torch.equal(found, torch.from_numpy(gguf.quants.dequantize(blocks, number)))
    assert seen[-1] == blocks.nbytes
    assert len(seen) > 2


def test_other_formats_and_shapes_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    number = gguf.GGMLQuantizationType.IQ4_NL
    writer.add_tensor("output.weight", np.zeros((4, 18), np.uint8), raw_dtype=number)
    writer.add_tensor("token_embd.weight", np.zeros((4, 18), np.float32))
    writer.add_tensor("blk.0.ffn_gate.weight", np.zeros((4, 18), np.float32))
    writer.add_tensor("blk.0.ffn_up.weight", np.zeros((4, 6), np.float32))
    finish(writer)
    with open_gguf(path, torch.float32, CPU) as reader:
        with pytest.raises(ModelError, match="output.weight has the format IQ4_NL, which is not read"):
            reader.read("lm_head.weight", (4, 32))
        with pytest.raises(ModelError, match=r"token_embd.weight has the shape \[4, 18\]; the metadata asks"):
            reader.read("model.embed_tokens.weight", (4, 20))
        joined = [f"model.layers.0.mlp.{part}_proj.weight" for part in ("gate", "up")]
        with pytest.raises(
            ModelError, match=r"the shapes \[4, 18\], \[4, 6\]; .* asks for \[8, 18\] together"
        ):
            reader.joined(joined, (8, 18))
        with pytest.raises(ModelError, match=r"lacks the weights model.norm.weight"):
            reader.read("model.norm.weight", (4,))

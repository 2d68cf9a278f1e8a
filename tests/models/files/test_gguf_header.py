"""Damaged and hostile files end in our errors, and soon.

A GGUF file runs as the model it was converted from. Files in parts: any part names the model; missing and
foreign parts are refused by name.
"""

import struct
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
from gencli.models.files.gguf_header import read_gguf_head
from gencli.models.files.gguf_metadata import MODEL_TYPES
from gencli.models.files.gguf_weights import open_gguf
from gencli.models.files.model_card import read_card
from gencli.runtime.model_loading import ModelChoice, load
from tests.helpers.gguf_files import ARCHS, random_blocks, write_model
from tests.models.cases import case
from tests.models.loops import Job, decode
from tests.models.native import load_native
from tests.models.tiny_models import NATIVE_CONFIGS, PROMPTS, WINDOW, base, build_native, long_rope

HEAD = b"GGUF" + struct.pack("<I", 3)


def text(given: str) -> bytes:
    return struct.pack("<Q", len(given.encode())) + given.encode()


def value(key: str, kind: int, packed: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + packed


def tensor(name: str, *dims: int, kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def file(tensors: list[bytes], values: list[bytes], data: bytes = b"") -> bytes:
    head = HEAD + struct.pack("<QQ", len(tensors), len(values)) + b"".join((*values, *tensors))
    return head + bytes(-len(head) % 32) + data


def test_a_damaged_header_is_refused(tmp_path: Path) -> None:
    for content, reason in [
        (b"", "is empty"),
        (b"GGUF", "does not begin with GGUF"),
        (b"PK" + bytes(100), "does not begin with GGUF"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(100), "is big-endian"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(100), "has version 1 of the format"),
        (HEAD + struct.pack("<QQ", 2**60, 0), "promises 1152921504606846976 of"),
        (HEAD + struct.pack("<QQ", 0, 2**60), "promises 1152921504606846976 of"),
        (HEAD + struct.pack("<QQ", 9, 0), "incomplete or too long"),
        (HEAD + struct.pack("<QQ", 0, 1) + struct.pack("<Q", 2**63), "promises 9223372036854775808 of"),
        (file([], [value("a", 8, struct.pack("<Q", 2**23))]), "incomplete or too long"),
        (file([], [value("a", 9, struct.pack("<IQ", 8, 2**60))]), "promises"),
        (file([], [value("a", 9, struct.pack("<IQ", 8, 2**20))]), "incomplete or too long"),
        (file([], [value("a", 9, struct.pack("<IQ", 4, 2**20))]), "incomplete or too long"),
        (file([], [value("a", 9, struct.pack("<IQ", 9, 2))]), "an array of the type 9"),
        (file([], [value("a", 77, bytes(8))]), "of the type 77"),
        (file([], [value("a", 8, struct.pack("<Q", 2) + b"\xff\xfe")]), "not UTF-8"),
        (file([], [value("a", 4, bytes(4))] * 2), "has 'a' twice"),
        (file([], [value("split.count", 2, struct.pack("<H", 3))]), "is one of 3 parts of a model"),
        (file([tensor("x", 4)] * 2, [], bytes(64)), "the tensor 'x' twice"),
        (file([tensor("x", 4)], []), "ends before its tensor 'x'"),
        (file([tensor("x", 2**62, 2**62)], []), "ends before its tensor 'x'"),
        (file([tensor("x", 4, offset=2**62)], [], bytes(64)), "ends before its tensor 'x'"),
        (file([tensor("x", 4, offset=3)], [], bytes(64)), "an offset that cannot be"),
        (file([tensor("x", 4), tensor("y", 4)], [], bytes(64)), "its tensors 'x' and 'y' overlap"),
        (
            file([tensor("z", 4, offset=32), tensor("x", 4, offset=64), tensor("y", 9)], [], bytes(128)),
            "its tensors 'y' and 'z' overlap",
        ),
        (file([tensor("x", 0)], [], bytes(64)), "the shape [0]"),
        (file([tensor("x", 33, kind=8)], [], bytes(64)), "the shape [33]"),
        (file([tensor("x", *[1] * 5)], [], bytes(64)), "has 5 dimensions"),
    ]:
        with case(content, reason):
            path = tmp_path / "model.gguf"
            path.write_bytes(content)
            with pytest.raises(ModelError) as caught:
                read_gguf_head(path)
            assert reason in caught.value.message


def test_values_have_their_types(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    values = [
        value("text", 8, text("yes")),
        value("small", 6, struct.pack("<f", 1e-5)),
        value("nan", 6, struct.pack("<f", float("nan"))),
        value("minus", 5, struct.pack("<i", -1)),
        value("flag", 7, b"\1"),
        value("texts", 9, struct.pack("<IQ", 8, 2) + text("a") + text("ß")),
        value("flags", 9, struct.pack("<IQ", 7, 2) + b"\0\7"),
    ]
    path.write_bytes(file([], values))
    head = read_gguf_head(path)
    assert (head.text("text"), head.number("small"), head.flag("flag")) == ("yes", 1e-5, True)
    assert (head.texts("texts"), list(head.numbers("flags") or ())) == (["a", "ß"], [0, 7])
    assert head.text("none") is head.numbers("none") is None
    for read, key in (
        *((head.count, key) for key in ("text", "flag", "minus", "texts", "small")),
        *((head.text, "flag"), (head.number, "nan"), (head.texts, "flags"), (head.numbers, "texts")),
        (head.texts, "text"),
    ):
        with pytest.raises(ModelError, match=key):
            read(key)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_model(path, build_native("llama"))
    return path.read_bytes()


def test_a_file_that_was_cut_is_refused_wherever_it_was_cut(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "model.gguf"
    for length in (*range(0, 4000, 37), *range(4000, len(whole), 4001), len(whole) - 33):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            load(ModelChoice(str(path), device="cpu"))


def check_wrong_bytes(path: Path, whole: bytes, *, count: int, seed: int) -> None:
    """Such a file loads or is refused."""
    noise = np.random.default_rng(seed)
    for _ in range(count):
        changed = bytearray(whole)
        for place in noise.integers(0, 5000, 3):
            changed[place] = noise.integers(0, 256)
        path.write_bytes(changed)
        try:
            read_card(path)
            load(ModelChoice(str(path), device="cpu"))
        except ModelError:
            pass


def test_a_file_with_wrong_bytes_loads_or_is_refused(tmp_path: Path, whole: bytes) -> None:
    check_wrong_bytes(tmp_path / "model.gguf", whole, count=30, seed=0)


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"general.architecture": "bert"}, "the architecture 'bert'"),
    ({"llama.new_gate": 3}, "llama.new_gate is not known"),
    ({"llama.block_count": 2**31 - 1}, "but the file has"),
    ({"llama.block_count": 3}, "lacks the weights model.layers.2"),
    ({"llama.embedding_length": 64}, "has the shape"),
    ({"llama.attention.head_count": 0}, "is missing or zero"),
    ({"llama.rope.dimension_count": 7}, "is 7 for heads of 8 values"),
    ({"llama.rope.scaling.type": "dynamic"}, "is 'dynamic'"),
    ({"llama.expert_count": 2**31 - 1, "llama.expert_used_count": 0}, "is not from 1 to 2147483647"),
    ({"llama.expert_count": 2**31 - 1, "llama.expert_used_count": 2}, "is missing; the metadata asks"),
    ({"tokenizer.ggml.tokens": None}, "has no tokenizer"),
    ({"tokenizer.ggml.model": "bert"}, "is 'bert'"),
    ({"tokenizer.ggml.pre": "new-bpe"}, "is 'new-bpe', which gencli does not know"),
    ({"tokenizer.ggml.token_type": [1, 1]}, "has 2 values for 120 tokens"),
    ({"tokenizer.ggml.merges": ["x yz"]}, "its tokenizer cannot be built"),
]


def test_metadata_that_cannot_be_is_refused(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "old.gguf").write_bytes(whole)
    path = tmp_path / "model.gguf"
    old = gguf.GGUFReader(tmp_path / "old.gguf")
    kept = {key: field.contents() for key, field in old.fields.items() if not key.startswith("GGUF.")}
    for change, reason in IMPOSSIBLE:
        writer = gguf.GGUFWriter(path, str(change.get("general.architecture", "llama")))
        for key, held in {**kept, **change}.items():
            if key != "general.architecture" and held is not None:
                kind = gguf.GGUFValueType.get_type(held)
                writer.add_key_value(key, held, gguf.GGUFValueType.UINT32 if isinstance(held, int) else kind)
        for one in old.tensors:
            writer.add_tensor(one.name, np.array(one.data))
        finish(writer)
        with case(change), pytest.raises(ModelError) as caught:
            load(ModelChoice(str(path), device="cpu"))
        assert reason in caught.value.message, change


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


def load_gguf(model: Path, **options: Any) -> DecoderRunner:
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
    ours, original = load_gguf(tmp_path / "model.gguf"), load_gguf(tmp_path)
    assert ours.spec.rope_switches == original.spec.rope_switches == (48,)
    assert texts(ours) == texts(original)


def test_sixteen_bits_are_read_as_they_are(tmp_path: Path) -> None:
    for kind, dtype in [("F16", torch.float16), ("BF16", torch.bfloat16)]:
        with case(kind, dtype):
            model = built(CONFIGS["llama"]()).to(dtype).float()
            model.save_pretrained(tmp_path)
            write_model(tmp_path / "model.gguf", model, kind)
            assert texts(load_gguf(tmp_path / "model.gguf")) == texts(load_gguf(tmp_path))


def check_quantized(tmp_path: Path, kind: str) -> None:
    """Such weights run as their widened numbers."""
    sizes = base(hidden_size=256, intermediate_size=256, num_attention_heads=4, head_dim=64)
    model = built(hf.LlamaConfig(**sizes))
    write_model(tmp_path / "model.gguf", model, kind)
    runner = load_gguf(tmp_path / "model.gguf")
    assert f"{kind} is widened to float32: 0.0 GiB" in runner.spec.notices
    _take(model, tmp_path / "model.gguf", kind)
    folder = tmp_path / "wide"
    model.save_pretrained(folder)
    assert texts(runner) == texts(load_gguf(folder))


def test_a_file_can_be_quantized_while_it_is_read(tmp_path: Path) -> None:
    model = built(hf.LlamaConfig(**base(hidden_size=64, intermediate_size=64)))
    model.save_pretrained(tmp_path)
    write_model(tmp_path / "model.gguf", model)
    ours = load_gguf(tmp_path / "model.gguf", quantize="int8")
    folder = load_gguf(tmp_path, quantize="int8")
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


def split(whole: Path, count: int = 3, total: int | None = None) -> list[Path]:
    """Write the parts of a file as llama-gguf-split does; return their paths."""
    old = gguf.GGUFReader(whole)
    parts = [whole.with_name(f"part-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    for number, path in enumerate(parts):
        writer = gguf.GGUFWriter(path, "llama")
        if number == 0:
            for key, field in old.fields.items():
                if not key.startswith("GGUF.") and key != "general.architecture":
                    kind = field.types[0]
                    sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
                    writer.add_key_value(key, field.contents(), kind, sub)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", total or len(old.tensors))
        for tensor in old.tensors[number::count]:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
        finish(writer)
    return parts


@pytest.fixture
def whole_model(tmp_path: Path) -> Path:
    write_model(tmp_path / "model.gguf", build_native("llama"), "Q4_0")
    return tmp_path / "model.gguf"


def test_parts_that_are_missing_foreign_or_renamed_are_refused_by_name(whole_model: Path) -> None:
    parts = split(whole_model)
    third = parts[2].read_bytes()
    parts[2].unlink()
    with pytest.raises(ModelError, match="part-00003-of-00003.gguf is missing: the model has 3 parts"):
        load_gguf(parts[0])
    parts[2].write_bytes(parts[1].read_bytes())
    with pytest.raises(ModelError, match="00003-of-00003.gguf is not part 3 of 3"):
        load_gguf(parts[0])
    parts[2].write_bytes(third)
    parts[0].rename(whole_model.with_name("renamed.gguf"))
    with pytest.raises(ModelError, match="one of 3 parts of a model, and is not named so"):
        load_gguf(whole_model.with_name("renamed.gguf"))
    with pytest.raises(ModelError, match="have [0-9]+ tensors in place of 99"):
        load_gguf(split(whole_model, total=99)[0])

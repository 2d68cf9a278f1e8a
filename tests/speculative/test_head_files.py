"""Folders of draft heads in every published layout are read to the same numbers; what is not known in full,
does not fit the model, or is hostile is refused by name before anything is computed from it.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gencli.errors import GencliError, ModelError, UsageError
from gencli.models.decoder.decoder_layers import read_layer, read_norm
from gencli.models.decoder.products.dense_products import PlainProduct
from gencli.models.decoder.products.product_maker import ProductMaker
from gencli.models.decoder.weight_readers import WeightReader
from gencli.speculative.head_files import (
    BlockConfig,
    Eagle1Config,
    Eagle3Config,
    HeadFile,
    MedusaConfig,
    MtpConfig,
    is_head,
    open_head,
    open_mtp,
)
from tests.models.cases import case
from tests.models.tiny_models import build
from tests.speculative.tiny_heads import (
    DFLASH,
    HEADS,
    Shape,
    TinyHead,
    dflash,
    eagle1,
    eagle3,
    medusa,
    medusa_vllm,
    speculators_config,
    with_option,
    without_key,
)

CPU = torch.device("cpu")
IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class Sizes:
    hidden: int = Shape().hidden
    num_layers: int = Shape().layers
    vocab_size: int = Shape().vocab


TARGET = Sizes()


def written(tmp_path: Path, head: TinyHead, *, file: str | None = None, **changes: Any) -> Path:
    """The folder of a head with a changed configuration; the value ... leaves a key out."""
    config = {key: value for key, value in {**head.config, **changes}.items() if value is not ...}
    changed = replace(head, config=config, file=file or head.file)
    return changed.write(tmp_path / f"head{len(os.listdir(tmp_path))}")


def refusal(folder: Path, target: Sizes = TARGET, opening: Any = open_head) -> str:
    """Why a folder is refused, when it is opened or when all of it is read."""
    with pytest.raises(GencliError) as caught:
        numbers(opening(str(folder), target))
    assert str(folder) in caught.value.message
    return caught.value.message


def numbers(head: HeadFile) -> dict[str, torch.Tensor]:
    """All tensors of a head by canonical names, in float32, and the ids of its draft vocabulary."""
    with head.reader(torch.float32, CPU) as reader:
        ids = None if head.kind in ("eagle1", "mtp") else head.token_ids(reader)
        tensors = {name: reader.read(name, head.tensors[name].shape) for name in sorted(reader.unread)}
    return tensors if ids is None else tensors | {"ids": ids}


def canonical(name: str) -> str:
    """The name of a tensor of a reference of tiny_heads in a HeadFile."""
    if name.startswith(("layers.", "embed_tokens.", "norm.")):
        return f"model.{name}"
    return name.replace("lm_heads.", "heads.")


KINDS = {"eagle1": Eagle1Config, "eagle3": Eagle3Config, "medusa": MedusaConfig}
KINDS |= {"dflash": BlockConfig, "dspark": BlockConfig}


@pytest.mark.parametrize("name", HEADS)
def test_every_layout_is_read_to_the_same_numbers(tmp_path: Path, name: str) -> None:
    made = HEADS[name](Shape())
    folder = made.write(tmp_path / "head")
    assert is_head(str(folder))
    head = open_head(str(folder), TARGET)
    assert head.kind == name.split()[0]
    assert isinstance(head.config, KINDS[head.kind])
    tensors, weights = numbers(head), dict(made.weights)
    if (ids := tensors.pop("ids", None)) is not None:
        offsets = weights.pop("d2t", None)
        wanted = weights.pop("token_map", None) if offsets is None else offsets + torch.arange(len(offsets))
        assert torch.equal(ids, wanted)
        weights.pop("t2d", None)
    if head.kind == "medusa" and (shared := tensors.pop("lm_head.weight", None)) is not None:
        tensors |= dict.fromkeys([key for key in weights if key.startswith("lm_heads.")], shared)
    for key, tensor in weights.items():
        with case(name, key):
            read = tensors.pop(canonical(key), None)
            read = tensors.pop(key) if read is None else read
            rows = read if len(read) == len(tensor) else read[ids]
            assert torch.equal(rows, tensor)
    assert tensors == {}


def test_a_plain_model_is_no_head(tmp_path: Path) -> None:
    build("llama").save_pretrained(tmp_path / "model")
    assert not is_head(str(tmp_path / "model"))
    assert "no kind of draft head" in refusal(tmp_path / "model", Sizes(32, 8, 120))


def test_other_kinds_are_refused_by_name(tmp_path: Path) -> None:
    for changes, kind in [
        ({"architectures": ["DFlash2DraftModel"], "dflash_config": {}}, "DFlash2"),
        ({"architectures": ["Qwen3Model"], "dflash_config": {"projector_type": "domino"}}, "Domino"),
        (
            {"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator"},
            "MLP speculator",
        ),
        ({"architectures": ["Gemma4AssistantForCausalLM"]}, "Gemma 4 assistant"),
        ({"model_type": "gemma4_assistant"}, "Gemma 4 assistant"),
        ({"architectures": ["PEagleDraftModel"]}, "P-EAGLE"),
        ({"parallel_drafting": True}, "P-EAGLE"),
        ({"speculators_model_type": "peagle"}, "P-EAGLE"),
        ({"speculators_model_type": "eagle"}, "eagle of speculators"),
        ({"speculators_model_type": ["eagle3"]}, "['eagle3'] of speculators"),
    ]:
        with case(changes):
            folder = written(tmp_path, eagle3(Shape()), **changes)
            assert f"the kind {kind} are not" in refusal(folder)
            with pytest.raises(ModelError):
                is_head(str(folder))


def test_a_key_that_is_not_known_is_named(tmp_path: Path) -> None:
    nested = eagle3(Shape(), layout="speculators", norm_before_residual=True)
    layers = nested.config["transformer_layer_config"]
    for head, changes, reason in [
        (eagle1(Shape()), {"new_gate": 1}, "'new_gate'"),
        (eagle3(Shape()), {"new_gate": 1}, "'new_gate'"),
        (nested, {"new_gate": 1}, "'new_gate'"),
        (nested, {"transformer_layer_config": {**layers, "new_gate": 1}}, "'new_gate'"),
        (nested, {"transformer_layer_config": None}, "transformer_layer_config"),
        (medusa(Shape()), {"new_gate": 1}, "'new_gate'"),
        (eagle3(Shape()), {"eagle_config": {"use_mtp_layernorm": True}}, "'use_mtp_layernorm' = True"),
        (eagle3(Shape()), {"eagle_config": {"parallel_draft_step": 2}}, "'parallel_draft_step' = 2"),
        (eagle3(Shape()), {"eagle_config": [1]}, "eagle_config"),
        (eagle3(Shape()), {"use_sliding_window": True}, "sliding windows"),
        (eagle3(Shape()), {"layer_types": ["sliding_attention"]}, "sliding windows"),
        (eagle3(Shape()), {"hidden_act": "relu2"}, "activation 'relu2'"),
        (eagle3(Shape()), {"rope_scaling": {"type": "mrope", "mrope_section": [1]}}, "'mrope'"),
        (eagle3(Shape()), {"quantization_config": {"quant_method": "fp8"}}, "quantized by another program"),
        (eagle3(Shape()), {"norm_output": "yes"}, "norm_output is 'yes'"),
        (eagle3(Shape()), {"logit_scale": "big"}, "logit_scale is 'big'"),
        (eagle3(Shape()), {"logit_scale": 10**400}, "logit_scale is 1000"),
        (eagle3(Shape()), {"layer_types": [[]]}, "sliding windows"),
        (eagle3(Shape()), {"draft_vocab_size": 2**40}, "draft_vocab_size is 1099511627776"),
        (eagle3(Shape()), {"num_hidden_layers": 2**31 - 1}, "more than 10000 layers"),
        (eagle3(Shape()), {"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        (eagle3(Shape()), {"hidden_size": "wide"}, "hidden_size is 'wide'"),
        (medusa(Shape()), {"medusa_num_layers": 2**31}, "medusa_num_layers is 2147483648"),
        (dflash(Shape()), {"attention_sink_bias": True}, "'attention_sink_bias'"),
        (dflash(Shape()), {"dflash_config": [1]}, "dflash_config is no object"),
        (dflash(Shape()), {"block_size": ...}, "names no block_size"),
        (dflash(Shape()), {"block_size": 1}, "names no block_size"),
        (dflash(Shape()), {"block_size": 65}, "block_size is 65"),
        (dflash(Shape()), {"use_sliding_window": True, "sliding_window": 4, "layer_types": ["x"]}, "type x"),
        (dflash(Shape(), speculators=True), {"dflash_config": {}, "use_swa": True}, "'use_swa'"),
        (dflash(Shape(), speculators=True), {"aux_hidden_state_layer_ids": None}, "layer_ids is None"),
        (dflash(Shape(), speculators=True), {"sample_from_anchor": 1}, "sample_from_anchor is 1"),
        (
            dflash(Shape(), speculators=True, sliding=(1,)),
            {"sliding_window_non_causal": True},
            "sliding windows that are not causal",
        ),
        (dflash(Shape(), sliding=(1,)), {"sliding_window": 5}, "sliding windows are shorter than a block"),
    ]:
        with case(changes):
            assert reason in refusal(written(tmp_path, head, **changes))
    # Keys of training, of other programs, or that say what is so in any case.
    folder = written(
        tmp_path,
        eagle3(Shape()),
        target_model_type="x",
        qkv_bias=False,
        max_window_layers=36,
        new_gate=None,
        eagle_config={"use_input_layernorm_in_first_layer": True, "parallel_draft_step": 1, IDS: []},
    )
    assert open_head(str(folder), TARGET).kind == "eagle3"


def test_the_choices_of_a_block_are_read_where_they_are_written(tmp_path: Path) -> None:
    for key, value, reason in [
        ("selector_rank", 4, "'selector_rank'"),
        ("mask_token_id", None, "mask_token_id is None"),
        ("mask_token_id", 120, "mask_token_id is 120"),
        ("mask_token_id", True, "mask_token_id is True"),
        ("target_layer_ids", [1, 3, 8], "states 2, 4, 9 of a model of 8 layers"),
        ("target_layer_ids", [1, 3], "fc reads 96 values, but 2 states of 32"),
        ("target_layer_ids", ["1"], "target_layer_ids is ['1']"),
        ("markov_rank", 4, "lacks the weights markov_head.markov_w1.weight"),
        ("causal", "no", "causal is 'no'"),
    ]:
        with case(key, value):
            assert reason in refusal(written(tmp_path, with_option(dflash(Shape()), key, value)))
    spark = HEADS["dspark"](Shape())
    assert "markov_head_type is 'deep'" in refusal(
        written(tmp_path, with_option(spark, "markov_head_type", "deep"))
    )
    # Published files have these beside dflash_config too, and others leave the layers out.
    flat = spark.config["dflash_config"] | {"dflash_config": None}
    assert open_head(str(written(tmp_path, spark, **flat)), TARGET).config == opened(tmp_path, spark).config
    options = dict(spark.config["dflash_config"])
    del options["target_layer_ids"]
    head = open_head(str(written(tmp_path, spark, dflash_config=options)), TARGET)
    assert head.config == opened(tmp_path, spark).config
    assert [notice.split(";")[0] for notice in head.notices] == [
        "The draft head does not say which layers it reads",
        "The draft head does not say sample_from_anchor",
    ]
    early = {f"logit_head.{name}": tensor for name, tensor in spark.tensors.items() if "markov" in name}
    rest = {name: tensor for name, tensor in spark.tensors.items() if "markov" not in name}
    assert opened(tmp_path, replace(spark, tensors=rest | early)).config.markov == "vanilla"


def test_places_of_drafts_are_those_of_training_where_a_file_leaves_them_open(tmp_path: Path) -> None:
    for name in DFLASH:
        head = opened(tmp_path, DFLASH[name](Shape()))
        assert head.config.samples_anchor == DFLASH[name](Shape()).settings["samples_anchor"]
        assert (head.kind == "dspark") == (head.config.markov is not None) == name.startswith("dspark")
    for name, is_anchor in (("dflash speculators", False), ("dspark speculators", True)):
        head = opened(tmp_path, without_key(DFLASH[name](Shape()), "sample_from_anchor"))
        assert head.config.samples_anchor is is_anchor
        assert bool(head.notices) is is_anchor


def opened(tmp_path: Path, head: TinyHead) -> HeadFile:
    return open_head(str(written(tmp_path, head)), TARGET)


def with_tensor(head: TinyHead, name: str, value: torch.Tensor | None) -> TinyHead:
    """The head with another tensor, or without it."""
    tensors = {key: tensor for key, tensor in head.tensors.items() if key != name}
    return replace(head, tensors=tensors if value is None else {**tensors, name: value})


def test_a_tensor_that_nothing_reads_is_named_at_the_end(tmp_path: Path) -> None:
    for head, name, strange in [
        (eagle1(Shape()), "norm.weight", "model.norm.weight"),
        (eagle3(Shape()), "midlayer.gate.weight", "model.layers.0.gate.weight"),
        (medusa(Shape()), "4.3.weight", "4.3.weight"),
        (medusa_vllm(Shape()), "blocks.0.gate.weight", "blocks.0.gate.weight"),
        (dflash(Shape()), "mask_embedding", "mask_embedding"),
        (dflash(Shape()), "layers.1.self_attn.g_proj.weight", "model.layers.1.self_attn.g_proj.weight"),
    ]:
        folder = written(tmp_path, with_tensor(head, name, torch.ones(32)))
        opened = open_head(str(folder), TARGET)
        with case(name):
            with pytest.raises(ModelError) as caught, opened.reader(torch.float32, CPU) as reader:
                read_all(opened, reader, but=strange)
            assert f"{folder}: the draft head is not known in full" in caught.value.message
            assert f"nothing reads the tensor {strange}" in caught.value.message


def read_all(head: HeadFile, reader: WeightReader, *, but: str) -> None:
    for name in reader.unread - {but}:
        reader.read(name, head.tensors[name].shape)


def test_a_tensor_that_is_missing_or_has_another_shape_is_named(tmp_path: Path) -> None:
    narrow = HEADS["eagle3 narrow"](Shape())
    for head, name, value, reason in [
        (eagle1(Shape()), "fc.weight", None, "there are no weights fc"),
        (eagle3(Shape()), "fc.weight", None, "lacks the weights fc.weight"),
        (eagle3(Shape()), "fc.weight", torch.ones(3), "fc.weight have the shape [3]"),
        (eagle3(Shape()), "fc.weight", torch.ones(32, 64), "fc reads 64 values, but 3 states of 32"),
        (narrow, "embed_tokens.weight", None, "lacks the weights model.embed_tokens.weight"),
        (narrow, "lm_head.weight", None, "lacks the weights lm_head.weight"),
        (narrow, "d2t", None, "lacks the weights d2t"),
        (narrow, "d2t", torch.zeros(59, dtype=torch.int64), "d2t have the shape [59]"),
        (medusa(Shape()), "0.0.linear.weight", None, "lacks the weights blocks.0.0.weight"),
        (medusa(Shape()), "0.1.weight", None, "lacks the weights heads.0.weight"),
        (medusa_vllm(Shape(), truncated=60), "token_map", None, "lacks the weights token_map"),
    ]:
        with case(name, value):
            assert reason in refusal(written(tmp_path, with_tensor(head, name, value)))
    opened = open_head(str(written(tmp_path, eagle1(Shape()))), TARGET)
    for read, reason in [
        (lambda reader: reader.read("fc.weight", (32, 63)), "fc.weight have the shape"),
        (lambda reader: reader.read("norm.weight", (32,)), "lacks the weights norm.weight"),
    ]:
        with pytest.raises(ModelError, match=reason), opened.reader(torch.float32, CPU) as reader:
            read(reader)


def test_a_head_of_another_model_is_refused(tmp_path: Path) -> None:
    whole = written(tmp_path, HEADS["eagle3"](Shape()))
    for folder, target, reason in [
        (whole, Sizes(hidden=16), "states as wide as 32, but here it is 16"),
        (whole, Sizes(vocab_size=121), "a vocabulary of 120, but here it is 121"),
        (whole, Sizes(num_layers=2), "states 2, 1, -1 of a model of 2 layers"),
        (written(tmp_path, HEADS["eagle3 narrow"](Shape())), Sizes(hidden=16), "states as wide as 32"),
        (written(tmp_path, eagle1(Shape())), Sizes(hidden=16), "states as wide as 32"),
        (written(tmp_path, medusa(Shape())), Sizes(vocab_size=121), "a vocabulary of 120"),
        (written(tmp_path, medusa_vllm(Shape())), Sizes(hidden=16), "states as wide as 32"),
        (
            written(tmp_path, dflash(Shape())),
            Sizes(num_layers=9),
            "a number of layers of 8, but here it is 9",
        ),
        (written(tmp_path, dflash(Shape())), Sizes(vocab_size=121), "a vocabulary of 120"),
    ]:
        with case(folder, reason):
            assert reason in refusal(folder, target)


def test_a_draft_vocabulary_lies_in_that_of_the_model(tmp_path: Path) -> None:
    head = eagle3(Shape(), draft_vocab=60)
    ids = head.tensors["d2t"] + torch.arange(60)
    for name, value, reason in [
        ("d2t", head.tensors["d2t"] + 100, "no different ids below 120"),
        ("d2t", head.tensors["d2t"] - 100, "no different ids below 120"),
        ("d2t", -torch.arange(60), "no different ids below 120"),  # all of them 0
        ("t2d", torch.ones(120, dtype=torch.bool), "contradict each other"),
        ("t2d", torch.ones(60, dtype=torch.bool), "t2d have the shape [60]"),
    ]:
        with case(name, reason):
            assert reason in refusal(written(tmp_path, with_tensor(head, name, value)))
    assert torch.equal(numbers(open_head(str(written(tmp_path, head)), TARGET))["ids"], ids)


def test_the_states_that_eagle3_reads(tmp_path: Path) -> None:
    for head, changes, taps in [
        (eagle3(Shape()), {}, (2, 4, 5)),
        (eagle3(Shape()), {IDS: [2, 4, 6]}, (2, 4, 6)),
        (eagle3(Shape()), {IDS: [1, 4, 6]}, (1, 4, 6)),
        (eagle3(Shape()), {"eagle_config": {IDS: [2, 4, 6]}}, (2, 4, 6)),
        (eagle3(Shape()), {"eagle_config": {IDS: [4, 6, 8]}}, (4, 6, 8)),  # 8: behind the last layer
        (eagle3(Shape()), {"eagle_config": {IDS: [1, 3, 4]}}, (2, 4, 5)),  # outputs of these layers
        (eagle3(Shape()), {"eagle_config": {IDS: []}}, (2, 4, 5)),
        (eagle3(Shape(), layout="speculators", taps=(1, 2)), {}, (1, 2)),
    ]:
        with case(changes, taps):
            opened = open_head(str(written(tmp_path, head, **changes)), TARGET)
            assert isinstance(opened.config, Eagle3Config)
            assert opened.config.taps == taps
            is_assumed = any("does not say which states" in notice for notice in opened.notices)
            assert is_assumed == (not changes.get(IDS) and taps == (2, 4, 5) and not begins_with_1(changes))
    for ids in ([2, 4], [2, 4, 9], [2, 4, -1], [2, 4, 5.0], [2, 4, True], "245", [2] * 1000):
        with case(ids):
            assert refusal(written(tmp_path, eagle3(Shape()), **{IDS: ids}))


def begins_with_1(changes: dict[str, Any]) -> bool:
    return changes.get("eagle_config", {}).get(IDS, [])[:1] == [1]


def test_what_is_assumed_is_said_once(tmp_path: Path) -> None:
    head = HEADS["eagle3 speculators by default"](Shape())
    opened = open_head(str(written(tmp_path, head)), TARGET)
    assert isinstance(opened.config, Eagle3Config)
    assert opened.config.norm_before_residual
    assert [notice.split(";")[0] for notice in opened.notices] == [
        "The draft head does not say norm_before_residual",
        "The draft head does not say which states it reads",
    ]
    assert open_head(str(written(tmp_path, medusa(Shape(), heads=3))), TARGET).notices == ()


class Evil:
    """What a pickle calls when it is loaded."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


def archive(path: Path, content: bytes, *, compression: int = zipfile.ZIP_STORED, **more: bytes) -> None:
    """A file as torch.save writes it, of any pickle."""
    with zipfile.ZipFile(path, "w", compression) as parts:
        parts.writestr("head/data.pkl", content)
        parts.writestr("head/version", b"3")
        for name, data in more.items():
            parts.writestr(f"head/{name}", data)


def saved(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def described(numbers: int, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """A pickle of one tensor over so many float32 numbers, as it says, of the part data/0."""

    class Storage:
        pass

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return (
                ("storage", torch.FloatStorage, "0", "cpu", numbers) if isinstance(value, Storage) else None
            )

    stream = io.BytesIO()
    pickler = Pickler(stream, protocol=2)
    rebuilt = Evil(torch._utils._rebuild_tensor_v2, Storage(), offset, size, stride, False, OrderedDict())
    pickler.dump({"fc.weight": rebuilt})
    return stream.getvalue()


def test_a_hostile_file_of_torch_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    touch, tensor = f"touch {ran}", torch.ones(32, 64)
    state = saved({"fc.weight": tensor})
    names = OrderedDict[str, Any]
    folder = written(tmp_path, eagle1(Shape()))
    path = folder / "pytorch_model.bin"
    for label, content, reason in [
        ("code", saved(names(x=Evil(os.system, touch))), "system"),
        ("memory", saved(names(x=Evil(bytearray, 2**50))), "bytearray"),
        ("tensor class", saved(names(x=Evil(torch.Tensor, 2**50))), "'torch Tensor'"),
        ("sparse", saved({"x": tensor.to_sparse()}), "_rebuild_sparse_tensor"),
        ("not tensors", saved({"x": 3}), "'x' of the type int"),
        ("no names", saved([tensor]), "a list"),
        ("nothing", saved({}), "a dict"),
        ("numbers for names", saved({3: tensor}), "3 of the type Tensor"),
        ("plain pickle", pickle.dumps({"x": Evil(os.system, touch)}), "no file of torch.save"),
        ("old format", legacy({"fc.weight": tensor}), "no file of torch.save"),
        ("empty", b"", "no file of torch.save"),
        ("cut off", state[: len(state) // 2], "no file of torch.save"),
        ("cut in the middle", state[:900] + state[-900:], "parts that are larger"),
        ("large", saved({"fc.weight": torch.ones(2**22)}), "need at most"),
    ]:
        with case(label):
            path.write_bytes(content)
            assert reason in refusal(folder)
            assert not ran.exists()


def legacy(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue()


def test_an_archive_that_lies_about_its_bytes_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, eagle1(Shape()))
    path, data = folder / "pytorch_model.bin", {"data/0": bytes(4 * 32 * 64)}
    for label, content, options, reason in [
        ("more numbers than bytes", described(10**9, 0, (10**9,), (1,)), data, "damaged"),
        ("outside", described(2048, 2000, (32, 64), (64, 1)), data, "damaged"),
        ("one number many times", described(1, 0, (10**6, 10**6), (0, 0)), data, "more numbers than bytes"),
        ("negative", described(2048, -1, (32, 64), (64, 1)), data, "damaged"),
        ("no part", described(2048, 0, (32, 64), (64, 1)), {}, "damaged"),
        ("packed", described(2048, 0, (32, 64), (64, 1)), {**data, "compression": 8}, "compressed"),
        ("two pickles", described(2048, 0, (32, 64), (64, 1)), {**data, "more/data.pkl": b"."}, "one pickle"),
        ("no pickle", b"", data, "damaged"),
        ("a stack name", b"\x80\x04\x8c\x02os\x8c\x06system\x93.", data, "STACK_GLOBAL"),
    ]:
        with case(label):
            archive(path, content, **options)  # type: ignore[arg-type]
            assert reason in refusal(folder)
    archive(path, described(2048, 0, (32, 64), (64, 1)), **data)
    assert torch.equal(numbers(open_head(str(folder), TARGET))["fc.weight"], torch.zeros(32, 64))


def test_a_pipe_in_place_of_weights_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, eagle1(Shape()))
    (folder / "pytorch_model.bin").unlink()
    os.mkfifo(folder / "pytorch_model.bin")
    assert "is a pipe" in refusal(folder)


def test_an_index_names_no_file_outside_of_its_folder(tmp_path: Path) -> None:
    folder = written(tmp_path, eagle1(Shape()), file="model.safetensors")
    (folder / "model.safetensors").rename(tmp_path / "model.safetensors")
    for name in ("../model.safetensors", str(tmp_path / "model.safetensors")):
        with case(name):
            index = {"weight_map": {"fc.weight": name}}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))
            assert "is not in its folder" in refusal(folder)


MTP_NAMES = {  # of the norms of embedding and state, the projection, and the norm behind the layer
    "mimo": ("model.mtp_layers.0.", ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm")),
    "deepseek": ("model.layers.2.", ("enorm", "hnorm", "eh_proj", "shared_head.norm")),
    "speculators": (
        "mtp_layers.0.",
        ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
    ),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of models without MTP layers, by family."""
    folder = tmp_path_factory.mktemp("models")
    for kind in ("llama", "mistral", "qwen3", "qwen3_moe", "gemma3"):
        build(kind).save_pretrained(folder / kind)
    return {kind: folder / kind for kind in os.listdir(folder)}


def with_mtp(model: Path, folder: Path, naming: str, **changes: Any) -> tuple[Path, dict[str, torch.Tensor]]:
    """A copy of a model with a layer of multi-token prediction: its last one, doubled, and four more tensors.

    Also these by canonical names. In the naming of speculators the folder has that layer alone.
    """
    config, tensors = json.loads((model / "config.json").read_text()), load_file(model / "model.safetensors")
    noise = torch.Generator().manual_seed(1)
    last = "model.layers.1."
    layer = {key.removeprefix(last): 2 * value for key, value in tensors.items() if key.startswith(last)}
    more = [torch.randn(*shape, generator=noise) for shape in ((32,), (32,), (32, 64), (32,))]
    if naming == "qwen":
        prefix = "mtp.layers.0."
        names = [f"mtp.{name}" for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")]
    else:
        prefix, parts = MTP_NAMES[naming]
        names = [prefix + part for part in parts]
    added = {prefix + key: tensor for key, tensor in layer.items()}
    added |= {f"{name}.weight": tensor for name, tensor in zip(names, more, strict=True)}
    if naming == "deepseek":
        copies = {f"{prefix}shared_head.head.weight": "lm_head.weight", f"{prefix}embed_tokens.weight": EMBED}
        added |= {name: tensors[source].clone() for name, source in copies.items()}
    if naming == "speculators":
        tensors = {}
        config = speculators_config("mtp", config) | {"num_nextn_predict_layers": 1}
    else:
        config["num_nextn_predict_layers"] = 1
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    save_file({**tensors, **added}, folder / "model.safetensors")
    canonical = zip(("embed_norm", "hidden_norm", "fc", "norm"), more, strict=True)
    read = {f"mtp.0.{part}.weight": tensor for part, tensor in canonical}
    return folder, read | {f"model.layers.0.{key}": tensor for key, tensor in layer.items()}


EMBED = "model.embed_tokens.weight"


def test_layers_in_the_target_are_read_under_every_naming(tmp_path: Path, models: dict[str, Path]) -> None:
    sizes = Sizes(num_layers=2)
    for family, naming, hidden_first in [
        ("llama", "mimo", True),
        ("mistral", "deepseek", False),
        ("qwen3", "qwen", False),
        ("qwen3_moe", "deepseek", False),
        ("qwen3", "speculators", False),
    ]:
        with case(family, naming):
            folder, wanted = with_mtp(models[family], tmp_path / f"{family}-{naming}", naming)
            opening = open_head if naming == "speculators" else open_mtp
            head = opening(str(folder), sizes)
            assert isinstance(head.config, MtpConfig)
            assert (head.kind, head.config.hidden_first) == ("mtp", hidden_first)
            assert head.config.spec.num_layers == 1
            assert is_head(str(folder)) == (naming == "speculators")
            read = numbers(head)
            assert read.keys() == wanted.keys()
            assert all(torch.equal(read[name], tensor) for name, tensor in wanted.items())
            make = ProductMaker(PlainProduct)
            with head.reader(torch.float32, CPU) as reader:  # the decoder reads the layer as its own
                read_layer(head.config.spec, reader, make, 0)
                for part in ("embed_norm", "hidden_norm", "norm"):
                    read_norm(head.config.spec, reader, f"mtp.0.{part}", 32)
                reader.read("mtp.0.fc.weight", (32, 64))


def test_layers_that_are_missing_or_not_known_are_refused(tmp_path: Path, models: dict[str, Path]) -> None:
    sizes = Sizes(num_layers=2)
    with pytest.raises(UsageError) as caught:
        open_mtp(str(models["llama"]), sizes)
    for name in ("model.mtp_layers.0.input_proj", "mtp.fc", "model.layers.2.eh_proj"):
        assert name in caught.value.message
    for family, changes, reason in [
        ("gemma3", {}, "layers of gemma3_text"),
        ("qwen3", {"model_type": "qwen3_next"}, "layers of qwen3_next"),
        ("qwen3", {"quantization_config": {"quant_method": "fp8"}}, "quantized by another program"),
        ("qwen3", {"chain_hidden_post_norm": True}, "chain_hidden_post_norm"),
        ("qwen3", {"new_gate": True}, "'new_gate'"),
    ]:
        with case(family, changes):
            folder, _ = with_mtp(models[family], tmp_path / str(len(os.listdir(tmp_path))), "qwen", **changes)
            assert reason in refusal(folder, sizes, open_mtp)
    folder, _ = with_mtp(models["qwen3"], tmp_path / "first", "qwen", mtp_hidden_states_first=True)
    head = open_mtp(str(folder), sizes)
    assert isinstance(head.config, MtpConfig)
    assert head.config.hidden_first
    with pytest.raises(ModelError, match="states as wide as 32"):
        open_mtp(str(folder), Sizes(hidden=16))

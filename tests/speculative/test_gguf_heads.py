"""Draft heads in GGUF files: they are read to the numbers of their folders, and what is not known in full,
does not fit the model, or is no head is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gencli.errors import ModelError
from gencli.runtime.model_loading import ModelChoice, load
from gencli.speculative import head_models
from gencli.speculative.head_files import BlockConfig, Eagle3Config, HeadFile, is_head, open_head, open_mtp
from gencli.speculative.head_models import read_head
from tests.helpers.gguf_files import write_head, write_model
from tests.models.cases import case
from tests.speculative.head_cases import SHAPE, Drafts, TensorTarget, admit
from tests.speculative.test_head_files import TARGET, numbers
from tests.speculative.tiny_heads import DFLASH, EAGLE3, HeadOf, TinyHead, dflash, eagle3, half
from tests.speculative.tiny_targets import tiny_target

TEXT = torch.randint(0, SHAPE.vocab, (30,), generator=torch.Generator().manual_seed(3)).tolist()
PATH = [5, 77, 11]
HEADS: Mapping[str, HeadOf] = {
    **{name: EAGLE3[name] for name in ("eagle3", "eagle3 speculators", "eagle3 full vocabulary")},
    **{name: EAGLE3[name] for name in ("eagle3 narrow", "eagle3 norm before fc")},
    "eagle3 with taps": lambda shape: eagle3(shape, layout="layers", taps=(2, 3, 7), head_dim=12),
    **{name: make for name, make in DFLASH.items() if not name.startswith("dspark")},
    "dspark": DFLASH["dspark"],
    "dspark speculators": lambda shape: dflash(
        shape, speculators=True, samples_anchor=True, markov="vanilla", draft_vocab=half(shape)
    ),
}


def written(folder: Path, head: TinyHead, kind: str = "F32", **changes: Any) -> Path:
    """The GGUF file of a head."""
    path = folder / "head.gguf"
    return write_head(path, head.config, head.tensors, kind, layers=SHAPE.layers, **changes)


def refusal(path: Path, opening: Any = open_head) -> str:
    """Why a file is refused, when it is opened or read."""
    target: Any = TensorTarget()
    with pytest.raises(ModelError) as caught:
        read_head(opening(str(path), target.spec), target)
    assert str(path) in caught.value.message
    return caught.value.message


def settings(head: HeadFile) -> Any:
    """The configuration of a head; rotary embeddings of one kind may have other keys."""
    assert isinstance(head.config, Eagle3Config | BlockConfig)
    (rope,), spec = head.config.spec.ropes, head.config.spec
    return replace(head.config, spec=replace(spec, ropes=(replace(rope, values={}),)))


def logits(path: Path, head: TinyHead, count: int) -> torch.Tensor:
    """The logits of the head in a file or folder, behind a text and `count` drafts."""
    target = TensorTarget()
    drafts = Drafts(target, open_head(str(path), target.spec), head.reference(target.ends))
    admit(drafts.drafter, 0)
    drafts.feed([(0, TEXT, 0, len(TEXT) - 1)])
    return drafts.logits({0: (TEXT, PATH[:count])})[0]


@pytest.mark.parametrize("name", HEADS)
def test_a_file_is_read_as_the_folder_is(tmp_path: Path, name: str) -> None:
    head = HEADS[name](SHAPE)
    folder, path = head.write(tmp_path / "head"), written(tmp_path, head)
    assert is_head(str(path))
    own, other = open_head(str(path), TARGET), open_head(str(folder), TARGET)
    assert (own.kind, settings(own)) == (other.kind, settings(other))
    assert own.lane_values == other.lane_values
    wanted, found = numbers(other), numbers(own)
    for key in ("t2d", "d2t"):
        wanted.pop(key, None), found.pop(key, None)
    assert found.keys() == wanted.keys()
    for key, tensor in wanted.items():
        with case(key):
            assert torch.equal(found[key], tensor)
    count = 0 if name == "dflash of one layer" else len(PATH)
    assert torch.equal(logits(path, head, count), logits(folder, head, count))


@pytest.mark.parametrize("least", [1, head_models._MIN_ROUNDED])
@pytest.mark.parametrize("name", ["eagle3", "dspark speculators"])
def test_weights_of_few_bits_are_widened_whatever_format_they_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, least: int
) -> None:
    head = HEADS[name](SHAPE)
    wanted = logits(head.write(tmp_path / "head"), head, 1)
    monkeypatch.setattr(head_models, "_MIN_ROUNDED", least)
    found = logits(written(tmp_path, head, "Q8_0"), head, 1)
    near = wanted.isfinite()
    assert near.equal(found.isfinite())
    error = (found - wanted)[near].norm() / wanted[near].norm()
    assert 1e-4 < error < 0.05


EAGLE, BLOCK = HEADS["eagle3"](SHAPE), HEADS["dspark speculators"](SHAPE)
MATRIX, NORM = torch.ones(32, 32), torch.ones(32)


def test_early_files_name_states_in_another_way_and_tell_the_vocabulary_by_a_key(tmp_path: Path) -> None:
    keys = {"eagle3.target_layers": None, "eagle3.extract_layers": [1, 3, 5], "eagle3.vocab_size": 120}
    path = written(tmp_path, EAGLE, keys=keys, add_vocabulary=lambda writer, count: None)
    config = open_head(str(path), TARGET).config
    assert isinstance(config, Eagle3Config)
    assert (config.taps, config.spec.vocab_size) == ((1, 3, 5), 120)


def test_what_a_file_leaves_open_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, BLOCK, keys={"dflash.sample_from_anchor": None, "dflash.attention.causal": None})
    head = open_head(str(path), TARGET)
    assert isinstance(head.config, BlockConfig)
    assert (head.config.samples_anchor, head.config.is_causal) == (True, False)
    assert "sample_from_anchor; true is taken" in head.notices[0]


@pytest.mark.parametrize(
    ("head", "keys", "told"),
    [
        (EAGLE, {"eagle3.swish": 1}, "eagle3.swish is not known for the architecture eagle3"),
        (BLOCK, {"dflash.selector_rank": 8}, "dflash.selector_rank is not known"),
        (BLOCK, {"dflash.hyper_connection.count": 4}, "dflash.hyper_connection.count is not known"),
        (EAGLE, {"eagle3.target_layers": None}, "eagle3.target_layers is missing"),
        (EAGLE, {"eagle3.target_layers": [2, 4]}, "fc reads 96 values, but 2 states of 32 are named"),
        (EAGLE, {"eagle3.target_layers": [2, 4, 9]}, "reads states 2, 4, 9 of a model of 8 layers"),
        (EAGLE, {"eagle3.target_layers": [2.5, 4.0, 5.0]}, "is [2.5, 4.0, 5.0]"),
        (EAGLE, {"eagle3.target_hidden_size": 64}, "states as wide as 64, but here it is 32"),
        (EAGLE, {"eagle3.attention.head_count_kv": 3}, "is 3, which does not divide 4 heads"),
        (
            EAGLE,
            {"eagle3.attention.key_length": 2**30, "eagle3.attention.value_length": 2**30},
            "asks for [32, ",
        ),
        (BLOCK, {"dflash.block_size": None}, "dflash.block_size is missing or zero"),
        (BLOCK, {"dflash.block_size": 65}, "metadata: block_size is 65"),
        (BLOCK, {"tokenizer.ggml.mask_token_id": None}, "metadata: mask_token_id is None"),
        (BLOCK, {"dflash.attention.sliding_window": 7}, "sliding_window_pattern is missing"),
        (BLOCK, {"dflash.rope.dimension_sections": [2, 2, 0, 0]}, "has more than one section"),
    ],
)
def test_keys_that_are_not_known_or_do_not_fit_are_refused_by_name(
    tmp_path: Path, head: TinyHead, keys: Mapping[str, Any], told: str
) -> None:
    assert told in refusal(written(tmp_path, head, keys=keys))


@pytest.mark.parametrize(
    ("head", "more", "told"),
    [
        (BLOCK, {"selector_hidden.weight": MATRIX}, "nothing reads the tensor selector_hidden.weight"),
        (BLOCK, {"blk.0.attn_conv_proj.weight": MATRIX}, "nothing reads the tensor blk.0.attn_conv_proj"),
        (BLOCK, {"blk.0.attn_sinks.weight": NORM}, "nothing reads the tensor blk.0.attn_sinks.weight"),
        (EAGLE, {"blk.0.post_attention_norm.weight": NORM}, "nothing would read the tensor blk.0."),
        (EAGLE, {"enc.output_norm.weight": NORM}, "nothing reads the tensor input_norm.weight"),
        (EAGLE, {"output.weight": None}, "lacks the weights lm_head.weight"),
        (BLOCK, {"enc.output_norm.weight": None}, "lacks the weights hidden_norm.weight"),
        # As a folder has them: offsets, of which the ids would be several times the same.
        (EAGLE, {"d2t": -torch.arange(60)}, "d2t gives no different ids below 120"),
    ],
)
def test_tensors_that_are_not_known_or_do_not_fit_are_refused_by_name(
    tmp_path: Path, head: TinyHead, more: Mapping[str, torch.Tensor], told: str
) -> None:
    assert told in refusal(written(tmp_path, head, more=more))


def test_a_head_is_no_model_and_a_model_no_head(tmp_path: Path) -> None:
    path, model = written(tmp_path, EAGLE), tmp_path / "model.gguf"
    with pytest.raises(ModelError) as caught:
        load(ModelChoice(name=str(path)))
    assert caught.value.message == f"{path} is a draft head, not a model."
    write_model(model, tiny_target().model)
    assert not is_head(str(model))
    assert "Layers for multi-token prediction are not read from GGUF" in refusal(model, opening=open_mtp)

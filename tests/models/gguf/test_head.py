"""Damaged and hostile files end in our errors, and soon."""

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from gencli.errors import ModelError
from gencli.models.files.gguf_header import read_gguf_head
from gencli.models.files.model_card import read_card
from gencli.runtime.model_loading import ModelChoice, load
from tests.helpers.gguf_files import write_model
from tests.models.cases import case
from tests.models.gguf.test_reader import finish
from tests.models.tiny_models import build_native

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

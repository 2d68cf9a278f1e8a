"""Files in parts: any part names the model; missing and foreign parts are refused by name."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from gencli.errors import ModelError
from tests.helpers.gguf_files import write_model
from tests.models.gguf.test_reader import finish, load
from tests.models.tiny_models import build_native


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
def whole(tmp_path: Path) -> Path:
    write_model(tmp_path / "model.gguf", build_native("llama"), "Q4_0")
    return tmp_path / "model.gguf"


def test_parts_that_are_missing_foreign_or_renamed_are_refused_by_name(whole: Path) -> None:
    parts = split(whole)
    third = parts[2].read_bytes()
    parts[2].unlink()
    with pytest.raises(ModelError, match="part-00003-of-00003.gguf is missing: the model has 3 parts"):
        load(parts[0])
    parts[2].write_bytes(parts[1].read_bytes())
    with pytest.raises(ModelError, match="00003-of-00003.gguf is not part 3 of 3"):
        load(parts[0])
    parts[2].write_bytes(third)
    parts[0].rename(whole.with_name("renamed.gguf"))
    with pytest.raises(ModelError, match="one of 3 parts of a model, and is not named so"):
        load(whole.with_name("renamed.gguf"))
    with pytest.raises(ModelError, match="have [0-9]+ tensors in place of 99"):
        load(split(whole, total=99)[0])

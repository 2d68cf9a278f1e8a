"""Write a copy of a model with quantized weights, reading its tensors one by one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gencli.errors import ModelError, UsageError
from gencli.models.backend import choose_backend
from gencli.models.decoder.decoder import read_decoder
from gencli.models.decoder.decoder_layers import Embeddings, HeldEmbeddings
from gencli.models.decoder.products.compiled_products import CompiledProduct
from gencli.models.decoder.products.dense_products import PlainProduct, Product
from gencli.models.decoder.products.product_maker import EMBEDDINGS, HEAD, QuantizedMaker, Weights
from gencli.models.decoder.weight_readers import SafetensorsReader, WeightReader
from gencli.models.files.checkpoint import Checkpoint, identify, read_checkpoint, read_folder
from gencli.models.files.gguf_header import is_gguf
from gencli.models.files.local_models import INDEX, SIDE_FILES, WEIGHTS
from gencli.models.files.model_files import METHOD, VERSION, OnBytes, Quantize, bits_of
from gencli.version import __version__

_SHARD = 2**30  # bytes of a weight file, and of the memory that holds it until it is written


@dataclass(frozen=True, slots=True)
class Written:
    """A written model: its folder, and the bytes of its weights before and after."""

    folder: Path
    before: int
    after: int


def quantize_model(
    name: str, target: Path, quantize: Quantize, *, on_bytes: OnBytes | None = None
) -> Written:
    """Write the model `name` to the new folder `target` with weights of 8 or 4 bits.

    Loading the folder gives the same weights as quantizing the model while it is loaded. `on_bytes` is called
    with the bytes read and the total. Raises UsageError if `target` exists, ModelError for a model that the
    decoder does not know or that is quantized already.
    """
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} exists already.", hint="Name a new folder; nothing is overwritten.")
    if not target.parent.is_dir():
        raise UsageError(f"There is no folder {target.parent} to write {target.name} to.")
    folder, config = read_folder(name)
    if is_gguf(folder):
        raise ModelError(f"{folder} is a GGUF file, which is quantized by other programs.")
    spec, _ = choose_backend("auto", config, quantize=quantize)
    checkpoint = read_checkpoint(folder, config, spec)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.mkdir()
        _write(checkpoint, part, quantize, on_bytes)
        part.rename(target)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    sizes = [
        sum(file.stat().st_size for file in files)
        for files in (checkpoint.files, target.glob("*.safetensors"))
    ]
    return Written(target, *sizes)


def _write(checkpoint: Checkpoint, target: Path, quantize: Quantize, on_bytes: OnBytes | None) -> None:
    from safetensors import safe_open

    bits, spec = bits_of(quantize), checkpoint.spec
    assert bits is not None
    assert spec is not None
    shards = _Shards(target)
    make = _CopyWriter(PlainProduct, bits=bits, eight=CompiledProduct, shards=shards)  # with groups
    _, unused = read_decoder(
        checkpoint, make=make, dtype=torch.float32, device=torch.device("cpu"), on_bytes=on_bytes
    )
    left_out = {*shards.done, *unused, *([HEAD] if spec.is_tied else [])}
    for stored_file in checkpoint.files:  # tensors that are not quantized, such as norms, as they are stored
        with safe_open(stored_file, framework="pt") as weights:
            for name, stored in checkpoint.table.items():
                if stored.file == stored_file and name not in left_out:
                    shards.add({name: weights.get_tensor(name)}, name)
    shards.close()
    identity = identify(checkpoint.folder)  # the model that the weights were
    source = {"name": identity.name, "revision": identity.revision, "sha256": identity.sha256}
    made_by = {"quant_method": METHOD, "version": VERSION, "bits": bits, "gencli": __version__}
    _write_json(
        target / "config.json", {**checkpoint.config, "quantization_config": {**made_by, "source": source}}
    )
    for file in target.glob("*.safetensors"):  # safetensors lets their owner alone read them
        shutil.copymode(target / "config.json", file)
    for path in checkpoint.folder.iterdir():
        is_side = any(fnmatchcase(path.name, pattern) for pattern in SIDE_FILES)
        if is_side and path.name != "config.json" and path.is_file():
            shutil.copyfile(path, target / path.name)


class _Shards:
    """Weight files that are written one after the other. `done` are the source tensors that they hold."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._held, self._files = folder, dict[str, Tensor](), dict[str, str]()
        self._size, self._total, self._count = 0, 0, 0
        self.done: set[str] = set()

    def add(self, tensors: Mapping[str, Tensor], *sources: str) -> None:
        """Add the tensors that the stored tensors `sources` became, in whole or in part."""
        self._held.update(tensors)
        self._size += sum(tensor.nbytes for tensor in tensors.values())
        self.done.update(sources)
        if self._size >= _SHARD:
            self._flush(f"model-{self._count + 1:05d}.safetensors")

    def close(self) -> None:
        """Write what is left, and the index of several files."""
        if not self._files:
            self._flush(WEIGHTS)
            return
        self._flush(f"model-{self._count + 1:05d}.safetensors")
        index = {"metadata": {"total_size": self._total}, "weight_map": self._files}
        _write_json(self._folder / INDEX, index)

    def _flush(self, name: str) -> None:
        from safetensors.torch import save_file

        if self._held or not self._files:
            save_file(self._held, self._folder / name, metadata={"format": "pt"})
            self._files.update(dict.fromkeys(self._held, name))
        self._total, self._count = self._total + self._size, self._count + 1
        self._held, self._size = {}, 0


def _written() -> Product:
    """The product of weights that were written."""
    return PlainProduct(torch.empty(0, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _CopyWriter(QuantizedMaker):
    """Writes the weights of products in place of making them."""

    shards: _Shards

    def read(
        self, reader: WeightReader, weights: Sequence[str], shape: tuple[int, int], biases: Sequence[str] = ()
    ) -> Product:
        """Write each of the weights. Raises ModelError if joined they have another shape."""
        assert isinstance(reader, SafetensorsReader)
        reader.check(weights, shape)
        for name in weights:
            rows = reader.shape(name)[0]
            self._add(reader, name, self.weights(reader, [name], (rows, shape[1])), (rows, shape[1]))
        if biases:
            reader.joined(biases, shape[:1])  # checked, and copied with the rest
        return _written()

    def read_ends(
        self, reader: WeightReader, shape: tuple[int, int], *, is_tied: bool
    ) -> tuple[Embeddings, Product]:
        """Write the embeddings and the vocabulary projection."""
        assert isinstance(reader, SafetensorsReader)
        for name in (EMBEDDINGS,) if is_tied else (EMBEDDINGS, HEAD):
            self._add(reader, name, self.int8(reader, [name], shape), shape)
        return HeldEmbeddings(torch.empty(0, 0)), _written()

    def _add(self, reader: SafetensorsReader, name: str, weights: Weights, shape: tuple[int, int]) -> None:
        names = [name + part.suffix for part in weights.parts(shape)]
        self.shards.add(dict(zip(names, weights.tensors, strict=True)), *reader.sources(name))


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")

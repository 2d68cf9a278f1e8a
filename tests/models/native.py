"""gencli's decoder: of a transformers model in memory, and of a folder or file."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gencli.models.decoder.decoder import Decoder, DecoderRunner, read_decoder
from gencli.models.decoder.families import read_spec
from gencli.models.decoder.products.product_maker import KernelOptions, choose_kernels
from gencli.models.files.checkpoint import Checkpoint, read_checkpoint, read_folder

CPU = torch.device("cpu")


def checkpoint_of(path: Path, **changes: Any) -> Checkpoint:
    """A checkpoint, of which a changed configuration is read."""
    found, config = read_folder(str(path))
    return read_checkpoint(found, config, read_spec({**config, **changes}))


def load_native(path: Path, device: torch.device | str = CPU, **options: Any) -> DecoderRunner:
    return DecoderRunner.load(checkpoint_of(path), device=str(device), **options)


def native_decoder(model: Any, device: torch.device = CPU, *, stacks_experts: bool | None = None) -> Decoder:
    """The decoder with the products of its device; `stacks_experts` decides on those of experts."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size="50kB")
        path, config = read_folder(folder)
        spec = read_spec(config)
        make = choose_kernels(spec.products, model.dtype, device, KernelOptions())
        if stacks_experts is not None:
            make = replace(make, stacks_experts=stacks_experts)
        decoder, unused = read_decoder(
            read_checkpoint(path, config, spec), make=make, dtype=model.dtype, device=device
        )
    assert unused == []
    return decoder

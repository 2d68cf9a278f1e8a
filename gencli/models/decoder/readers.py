"""Open the weights of a checkpoint with the reader of its files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gencli.models.decoder.joined_experts import JoinedExpertsReader
from gencli.models.decoder.reader import WeightReader
from gencli.models.decoder.weights import SafetensorsReader
from gencli.models.files.checkpoint import Checkpoint
from gencli.models.files.tensors import open_tensors
from gencli.models.gguf.head import is_gguf
from gencli.models.gguf.reader import open_gguf
from gencli.models.watch import OnBytes

__all__ = ["open_weights"]


@contextmanager
def open_weights(
    checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, on_bytes: OnBytes | None = None
) -> Iterator[WeightReader]:
    """Open the files of a checkpoint for reading."""
    if is_gguf(checkpoint.folder):
        with open_gguf(checkpoint.folder, dtype, device, on_bytes) as found:
            yield found
        return
    with open_tensors(checkpoint.table) as opened:
        is_joined = checkpoint.spec is not None and checkpoint.spec.names.are_experts_joined
        reader = JoinedExpertsReader if is_joined else SafetensorsReader
        yield reader(opened, dtype, device, on_bytes)

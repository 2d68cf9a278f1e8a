"""Logits from a .npy or .safetensors file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gencli.errors import UsageError

_MAX_BYTES = 1 << 31  # of all rows


def read_logits(name: str, tensor: str | None = None) -> Tensor:
    """Return logits [T, V] float32 from a file with a tensor [V] or [T, V]. Raises UsageError otherwise.

    `tensor`: name of the tensor in a .safetensors file with several. Pickled objects are not read.
    """
    path = Path(name)
    try:
        logits = _npy(path) if path.suffix == ".npy" else _safetensors(path, tensor)
    except (OSError, ValueError, SafetensorError) as error:
        raise UsageError(f"The logits {name!r} cannot be read: {error}.") from None
    if logits.dim() not in (1, 2) or not logits.numel():
        message = f"The logits {name!r} have the shape {list(logits.shape)}."
        raise UsageError(message, hint="It has to be [V] or [T, V].")
    rows = logits.reshape(-1, logits.shape[-1]).float()
    for number, row in enumerate(rows):
        if bool(torch.isnan(row).any()) or bool((row == torch.inf).any()):
            raise UsageError(f"Row {number} of the logits {name!r} has NaN or an infinite logit.")
        if bool((row == -torch.inf).all()):
            raise UsageError(f"Row {number} of the logits {name!r} masks every token.")
    return rows


def _npy(path: Path) -> Tensor:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"it has {array.dtype}, and not numbers")
    _check_size(array.nbytes)
    return torch.from_numpy(np.array(array, dtype=np.float32))


def _safetensors(path: Path, tensor: str | None) -> Tensor:
    with safe_open(path, "pt") as file:
        names = list(file.keys())
        if tensor is None and len(names) != 1:
            message = f"{path} has {len(names)} tensors: {', '.join(names[:5])}."
            raise UsageError(message, hint="Name one of them.")
        name = names[0] if tensor is None else tensor
        if name not in names:
            raise UsageError(f"{path} has no tensor {name[:60]!r}, but {', '.join(names[:5])}.")
        part = file.get_slice(name)
        _check_size(4 * int(np.prod(part.get_shape() or [1])))
        logits: Tensor = file.get_tensor(name)
        if not logits.is_floating_point():
            raise ValueError(f"{name} has {logits.dtype}, and not floating-point numbers")
        return logits


def _check_size(size: int) -> None:
    if size > _MAX_BYTES:
        raise ValueError(f"it has {size:,} bytes of logits, at most {_MAX_BYTES:,} are read")

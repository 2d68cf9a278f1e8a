"""Logits in files: of a .npy or .safetensors file, and those that a trace keeps, ids and values in base64."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gencli.errors import UsageError
from processors.explain_rows import KeptLogits

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


_MAX_VOCABULARY = 1 << 20
_IDS, _VALUES = "<i4", "<f4"  # number formats in the file
_SLACK = 1e-3  # rounding error of a sum of logits


def kept_fields(kept: KeptLogits) -> dict[str, Any]:
    """Return the fields: ids (int32) and values (float32) as little-endian bytes in base64."""
    return {
        "ids": base64.b64encode(kept.ids.numpy().astype(_IDS).tobytes()).decode("ascii"),
        "values": base64.b64encode(kept.values.numpy().astype(_VALUES).tobytes()).decode("ascii"),
        "rest": None if kept.rest == -math.inf else kept.rest,  # null: the other ids have no probability
        "vocab": kept.vocab_size,
        "seed": kept.seed,
    }


def read_kept(fields: Mapping[str, Any]) -> KeptLogits:
    """Return the kept logits of a record. Raises KeyError, TypeError or ValueError for invalid fields."""
    size, seed, others = fields["vocab"], fields["seed"], fields["rest"]
    if not isinstance(size, int) or not 0 < size <= _MAX_VOCABULARY:
        raise ValueError(f"vocab is {str(size)[:40]}")
    if not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise ValueError(f"seed is {str(seed)[:40]}, and not a number of 64 bits")
    ids, values = _unpacked(fields["ids"], _IDS), _unpacked(fields["values"], _VALUES)
    if not 0 < len(ids) == len(values) <= size or len(torch.unique(ids)) < len(ids):
        raise ValueError(f"{len(values)} logits of {len(ids)} ids are kept")
    if int(ids.min()) < 0 or int(ids.max()) >= size:
        raise ValueError(f"ids reach from {int(ids.min())} to {int(ids.max())} in a vocabulary of {size}")
    if others is not None and not (isinstance(others, int | float) and math.isfinite(others)):
        raise ValueError(f"rest is {str(others)[:40]}")
    if not bool((values < math.inf).all()):  # also rejects NaN
        raise ValueError("a logit is no number")
    bound = float(values.min()) + math.log(size - len(ids)) if len(ids) < size else -math.inf
    if others is not None and others > bound + _SLACK:  # no other logit exceeds the smallest kept one
        raise ValueError(f"rest is {others}, but at most {bound} with the logits that are kept")
    return KeptLogits(ids, values, -math.inf if others is None else float(others), size, seed)


def _unpacked(text: str, kind: str) -> Tensor:
    """Return the decoded numbers [L], int64 or float32."""
    try:
        numbers = np.frombuffer(base64.b64decode(text, validate=True), kind)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"they are not numbers in base64: {error}") from None
    return torch.from_numpy(numbers.astype(np.int64 if kind == _IDS else np.float32))

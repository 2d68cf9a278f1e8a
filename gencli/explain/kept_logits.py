"""Kept logits as fields of a record: ids and values in base64."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from processors.explain_rows import KeptLogits

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

"""`Spelling`: the bytes of all tokens, as tensors and in sorted order."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import torch
from torch import Tensor

from processors.rows import Visible
from processors.upload import upload

__all__ = ["NO_BYTE", "Spelling"]

NO_BYTE = 256  # stands for bytes before the start of the text


class Spelling:
    """The bytes of each token. Special tokens have none and are skipped."""

    def __init__(self, token_bytes: Sequence[bytes], width: int, device: torch.device) -> None:
        missing = [b""] * (width - len(token_bytes))  # ids without a token in the tokenizer
        self.token_bytes = [*token_bytes, *missing]
        self.longest = max(map(len, self.token_bytes), default=0)
        flat = bytearray(b"".join(self.token_bytes) or b"\0")
        self._flat = torch.frombuffer(flat, dtype=torch.uint8).to(device, non_blocking=True)
        self._lengths = upload([len(data) for data in self.token_bytes], device)
        self._starts = self._lengths.cumsum(0) - self._lengths
        self.width = width
        ids = sorted(range(width), key=self.token_bytes.__getitem__)
        self.order = upload(ids, device)
        self._sorted = [self.token_bytes[token] for token in ids]

    def starting_with(self, prefix: bytes) -> tuple[int, int]:
        """Return the range in `order` of the tokens that start with these bytes."""
        size = len(prefix)
        low = bisect.bisect_left(self._sorted, prefix)
        return low, bisect.bisect_right(self._sorted, prefix, lo=low, key=lambda data: data[:size])

    def tail(self, seen: Visible, size: int) -> Tensor:
        """Return the last `size` bytes before each row [R, size], latest first; NO_BYTE before the start."""
        ids = torch.nn.functional.pad(seen.ids, (1, 0)).flip(1)  # one extra column, so that W > 0
        counted = torch.nn.functional.pad(seen.valid, (1, 0)).flip(1)
        ends = torch.where(counted, self._lengths[ids], 0).cumsum(
            1
        )  # bytes from the start of each token to the end
        places = torch.arange(size, device=ids.device).expand(len(ids), -1).contiguous()
        at = torch.searchsorted(ends, places, right=True)  # index of the token that contains the byte
        within = at < ids.shape[1]
        at = at.clamp(max=ids.shape[1] - 1)
        offset = (ends.gather(1, at) - 1 - places).clamp(min=0)
        byte = self._flat[(self._starts[ids.gather(1, at)] + offset).clamp(max=len(self._flat) - 1)].long()
        return torch.where(within, byte, NO_BYTE)

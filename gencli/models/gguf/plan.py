"""Which weights of a GGUF file keep their bits in memory, and the bytes that they take. Light to import."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from gencli.models.files.quantization import Format, Quantize
from gencli.models.gguf.head import GgufHead, GgufTensor, is_gguf, read_gguf_head

__all__ = ["KEPT", "held_tensors", "kept_bytes", "kept_kinds", "weight_format", "widening"]

# Four bits in groups of 32, with a scale and a zero or minimum: what the kernel for four bits computes.
KEPT = frozenset(("Q4_0", "Q4_1", "Q4_K"))
_EMBEDDINGS, _HEAD = "token_embd.weight", "output.weight"
_KEPT_BITS = 5  # a weight; groups of four bits have scales of one bit a weight


def weight_format(model: Path, quantize: Quantize, *, dtype: str, device: str) -> Format:
    """Return how a model's weights are held: as `quantize` says, or `kept`, with the bits of a GGUF file.

    They are kept on a CPU and on CUDA (`device`) with the dtype `auto`; another dtype widens them.
    """
    can_keep = quantize == "none" and dtype == "auto" and device in ("cpu", "cuda")
    is_kept = can_keep and bool(kept_kinds(model))
    return "kept" if is_kept else quantize


def kept_kinds(model: Path) -> tuple[str, ...]:
    """Return the number formats of a GGUF file's matrices whose bits can be kept; () for another model."""
    if not is_gguf(model):
        return ()
    return tuple(sorted({tensor.kind.name for tensor in _matrices(read_gguf_head(model))} & KEPT))


def held_tensors(head: GgufHead) -> Iterator[GgufTensor]:
    """Yield the tensors that are held in memory: all but embeddings with a projection of their own."""
    for tensor in head.tensors.values():
        if tensor.name != _EMBEDDINGS or _HEAD not in head.tensors:
            yield tensor


def kept_bytes(model: Path, rest: int, head: int = 4) -> int:
    """Return the bytes of all weights but embeddings if bits are kept and others have `rest` each.

    The vocabulary projection has `head`. Vectors and matrices in F32 have four.
    """
    total = 0
    for tensor in held_tensors(read_gguf_head(model)):
        count = math.prod(tensor.shape)
        if tensor.name in (_EMBEDDINGS, _HEAD):
            total += head * count
        elif len(tensor.shape) == 1 or tensor.kind.name == "F32":
            total += 4 * count
        else:
            total += count * _KEPT_BITS // 8 if tensor.kind.name in KEPT else count * rest
    return total


def widening(model: Path, to: str, number_bytes: int, *, is_kept: bool) -> tuple[str, ...]:
    """Return the notice that quantized weights are widened to the format `to`, if some are."""
    quantized = [tensor for tensor in held_tensors(read_gguf_head(model)) if tensor.kind.is_quantized]
    wide = [tensor for tensor in quantized if not (is_kept and tensor.kind.name in KEPT)]
    if not wide:
        return ()
    kinds = sorted({tensor.kind.name for tensor in wide})
    size = sum(math.prod(tensor.shape) for tensor in wide) * number_bytes / 2**30
    return (f"{' and '.join(kinds)} {'is' if len(kinds) == 1 else 'are'} widened to {to}: {size:.1f} GiB",)


def _matrices(head: GgufHead) -> Iterator[GgufTensor]:
    return (tensor for tensor in held_tensors(head) if len(tensor.shape) > 1)

"""Which experts compute a row, and the sum of what they return: two launches on CUDA."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.kernels.operation import operation

__all__ = ["mixed", "num_entries", "routed"]


def routed(logits: Tensor, used: int, is_normalized: bool, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the choice of `used` of E experts for each row by the router's `logits` [N, E].

    The best ones by the softmax in float32 are chosen, the lowest number among equals. A pair is a row and a
    slot, row * used + slot; the slots of a row are its experts in the order of their numbers. Returned are
    the shares [N, used] of the experts, in the format of the logits, whose sum is 1 if `is_normalized`;
    int32 lists [E, N], of which expert e has its pairs in row e, in ascending order; and int32 tiles [T, 3],
    at most `block` pairs of one expert each: the expert, the first place in its list, and how many pairs,
    0 for tiles that are not needed. T depends on N, E, `used` and `block` alone.
    """
    found: tuple[Tensor, Tensor, Tensor] = _routed(logits.contiguous(), used, is_normalized, block)
    return found


def mixed(made: Tensor, shares: Tensor) -> Tensor:
    """Return the sum of a row's pairs `made` [N * used, H] times their shares [N, used]: [N, H].

    It is added up in float32, slot by slot, and rounded once.
    """
    found: Tensor = _mixed(made, shares)
    return found


def num_entries(rows: int, experts: int, used: int, block: int) -> int:
    """Return the most tiles that any choice takes.

    n experts with p pairs in all take at most p / block full tiles and n others, and an expert has each row
    once at most.
    """
    chosen = min(experts, rows * used)
    return min(chosen + rows * used // block, chosen * -(-rows // block))


def _routed_torch(
    logits: Tensor, used: int, is_normalized: bool, block: int
) -> tuple[Tensor, Tensor, Tensor]:
    rows, experts = logits.shape
    odds = logits.softmax(-1, dtype=torch.float32)
    best = odds.sort(dim=-1, descending=True, stable=True).indices[:, :used]
    chosen = best.sort(-1).values
    shares = odds.gather(-1, chosen)
    if is_normalized:
        shares = shares / shares.sum(-1, keepdim=True)
    is_used = torch.zeros_like(odds, dtype=torch.int64).scatter_(1, chosen, 1)
    places = (is_used.cumsum(0) - is_used).gather(1, chosen)
    lists = chosen.new_zeros(experts, rows, dtype=torch.int32)
    lists[chosen, places] = torch.arange(rows * used, dtype=torch.int32, device=logits.device).view(
        rows, used
    )
    counts = is_used.sum(0)
    starts = torch.arange(0, rows, block, device=logits.device)
    sizes = (counts[:, None] - starts).clamp(0, block)
    numbers = torch.arange(experts, device=logits.device)[:, None].expand(-1, len(starts))
    entries = torch.stack([numbers, starts.expand(experts, -1), sizes], -1).view(-1, 3)
    entries = entries[(entries[:, 2] == 0).sort(stable=True).indices]  # those that are needed come first
    tiles = entries[: num_entries(rows, experts, used, block)].int()
    return shares.to(logits.dtype), lists, tiles


def _mixed_torch(made: Tensor, shares: Tensor) -> Tensor:
    rows, used = shares.shape
    pairs, weights = made.view(rows, used, made.shape[1]).float(), shares.float()
    total = made.new_zeros(rows, made.shape[1], dtype=torch.float32)
    for slot in range(used):
        total += pairs[:, slot] * weights[:, slot, None]
    return total.to(made.dtype)


_MODULE = "gencli.models.decoder.kernels.routing_triton"
_routed = operation(
    "route_experts(Tensor logits, int used, bool is_normalized, int block) -> (Tensor, Tensor, Tensor)",
    _routed_torch,
    f"{_MODULE}:routed",
)
_mixed = operation("mix_experts(Tensor made, Tensor shares) -> Tensor", _mixed_torch, f"{_MODULE}:mixed")

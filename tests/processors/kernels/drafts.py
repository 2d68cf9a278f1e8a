"""Drafts as the kernel for rejection is given them."""

import torch

from processors.kernels.operations import token_probability

__all__ = ["MANY", "case"]

MANY = (2, 0, 4, 1, 3)  # drafts of each request


def case(seed, width, sizes, *, certain=0.3, near=0.5):
    """Logits [R, V], seeds, positions, spans and proposals of requests with drafts of these numbers."""
    generator = torch.Generator().manual_seed(seed)
    rows, most = sum(sizes) + len(sizes), max(sizes)
    logits = 3 * torch.randn(rows, width, generator=generator)
    num_drafts = torch.tensor(sizes)
    starts = (num_drafts + 1).cumsum(0) - num_drafts - 1
    at = torch.cat([start + torch.arange(size) for start, size in zip(starts.tolist(), sizes, strict=True)])
    source = near * torch.randn(len(at), width, generator=generator) + logits[at]
    tokens = source.softmax(-1).multinomial(1, generator=generator).squeeze(1)
    is_drawn = torch.rand(len(at), generator=generator) >= certain
    drafts = torch.full((len(sizes), most), -1)
    drafts[torch.arange(most) < num_drafts[:, None]] = tokens
    q_row = torch.full((rows,), -1)
    q_row[at[is_drawn]] = torch.arange(int(is_drawn.sum()))
    has_rows = bool(is_drawn.any())
    proposal = source[is_drawn] if has_rows else None
    chances = token_probability(proposal, tokens[is_drawn]) if has_rows else None
    table = torch.randint(-(2**62), 2**62, (rows, 3), generator=generator)
    positions = torch.arange(rows * 3).view(rows, 3)[:, 2]  # with a stride, as in a step
    return [logits, table[:, 0].clone(), positions, starts, num_drafts, drafts, q_row, proposal, chances]

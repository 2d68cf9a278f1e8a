"""The tasks of drafts of the kernel for rejection, without those that replace them: nothing waits there."""

import torch

from processors.kernels import operations as kept
from processors.kernels import rejection_triton

__all__ = ["verdicts"]


def verdicts(stops, given):
    """Verdicts [R] of all rows, 0 without one, where these stops [Q] have been noted before."""
    kernel, rows, (requests, most) = rejection_triton._kernel, len(given[0]), given[5].shape
    counters = kept.counters(2 + 2 * (requests + rows), given[0].device)
    counters[2 : 2 + requests] = stops

    class Drafts:
        def __getitem__(self, grid):
            return kernel[(grid[0] // (most + 1) * most,)]

    rejection_triton._kernel = Drafts()
    try:
        rejection_triton.rejection_triton(*given)
        return counters[2 + 2 * requests + rows :][:rows].to(torch.int64)
    finally:
        rejection_triton._kernel = kernel
        kept._kept.clear()

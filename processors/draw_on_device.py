"""The draw of a `Sampler` on a GPU in a few kernels, from logits that all stages have processed."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from processors.catalog import Draw
from processors.rows import Rows
from processors.sampler import Sampler
from processors.upload import upload

__all__ = ["sampled"]


def sampled(sampler: Sampler, logits: Tensor, rows: Rows) -> Tensor:
    """Return `sampler(logits, rows)`; on CUDA in two launches, if no row draws by inverse CDF."""
    draws = sampler.draws(rows)
    if not logits.is_cuda or "multinomial" in draws:
        return sampler(logits, rows)
    from processors.kernels.choice.run import Given, Kind, choose

    kind: Kind = "greedy" if set(draws) == {"greedy"} else "draw"
    seeds, positions = rows.seeds.contiguous(), rows.positions.contiguous()
    return choose(Given(logits, _controls(draws, logits.device), seeds, positions), kind)


@lru_cache(64)
def _controls(draws: tuple[Draw, ...], device: torch.device) -> Tensor:
    """Return controls [R, C] without a stage."""
    from processors.kernels.choice.parts import Control, without_stages

    lines = [without_stages() for _ in draws]
    for line, draw in zip(lines, draws, strict=True):
        line[Control.GREEDY] = float(draw == "greedy")
    return upload(lines, device, torch.float64)

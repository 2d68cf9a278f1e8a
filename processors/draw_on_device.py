"""`Sampler`'s draw on a GPU by the kernels of a choice, from processed logits."""

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
    """Return `sampler(logits, rows)`; on CUDA in two launches, four if a row draws by inverse CDF."""
    draws = sampler.draws(rows)
    if not logits.is_cuda:
        return sampler(logits, rows)
    from processors.kernels.choice.run import Given, Kind, choose

    kind: Kind = "greedy" if set(draws) == {"greedy"} else "draw"
    if "multinomial" in draws:
        kind = "draw-inverse"
    seeds, positions = rows.seeds.contiguous(), rows.positions.contiguous()
    return choose(Given(logits, _controls(draws, logits.device), seeds, positions), kind)


@lru_cache(64)
def _controls(draws: tuple[Draw, ...], device: torch.device) -> Tensor:
    """Return controls [R, C] with the draw method of each row and all stages off."""
    from processors.kernels.choice.parts import Control, without_stages

    lines = [without_stages() for _ in draws]
    for line, draw in zip(lines, draws, strict=True):
        line[Control.GREEDY], line[Control.INVERSE] = float(draw == "greedy"), float(draw == "multinomial")
    return upload(lines, device, torch.float64)

"""What a step has chosen, brought to the host in one transfer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gencli.engine.scheduler import Choosing
from processors.rows import Rows
from processors.upload import upload

__all__ = ["StepResult", "own_logprobs"]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step decides for each sequence: the tokens that stand, -1 where none could be chosen.

    `logits` are those that the rows were chosen from. `logprobs` has the model's own logprob of each token,
    without stages and companions, for sequences that are chosen among by it.
    """

    choosing: Choosing
    logits: Tensor
    rows: Rows
    tokens: list[list[int]]
    logprobs: list[list[float]]

    @classmethod
    def read(
        cls, choosing: Choosing, own: Tensor, logits: Tensor, rows: Rows, verified: tuple[Tensor, Tensor]
    ) -> StepResult:
        """From tokens [Q, K + 1] and counts [Q] as verified; own [R, V] are the model's logits."""
        tokens, counts = verified
        width = tokens.shape[1]
        table = torch.cat([counts[:, None], tokens], dim=1)
        wanted = [bool(sequence.request.best_of) for sequence, _ in choosing]
        if any(wanted):  # as float64, which holds every token exactly
            table = torch.cat([table, own_logprobs(own, rows, tokens, wanted)], dim=1)
        # The one wait for the device.
        lines = [(int(count), values) for count, *values in table.tolist()]
        return cls(
            choosing,
            logits,
            rows,
            tokens=[[int(token) for token in values[:count]] for count, values in lines],
            logprobs=[values[width:][:count] for count, values in lines],
        )


def own_logprobs(logits: Tensor, rows: Rows, tokens: Tensor, wanted: Sequence[bool]) -> Tensor:
    """The model's logprobs [Q, K + 1] float64 of a step's tokens [Q, K + 1]; 0 for requests not wanted.

    logits [R, V] are the model's own; token j of a request was chosen at its row j.
    """
    owners = [owner for owner, count in enumerate(rows.counts) for _ in range(count)]
    mine = [row for row, owner in enumerate(owners) if wanted[owner]]
    at, owner = upload([mine, [owners[row] for row in mine]], tokens.device)
    offsets = rows.offsets[at]
    every = logits.to(tokens.device)[at].double().log_softmax(-1)
    found = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
    found[owner, offsets] = every.gather(1, tokens[owner, offsets, None].clamp(min=0)).squeeze(1)
    return found

"""The stage `synthid`: tournaments of pseudorandom bits, the watermark SynthID-Text."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.catalog import Phase
from processors.catalog.watermark import SynthIdParams
from processors.kernels.blocks import row_parts
from processors.kernels.sums import row_sums
from processors.rows import Rows
from processors.stages.tables import TableStage
from processors.stages.tokens import LOWEST
from processors.stages.truncation import mass
from processors.upload import upload
from processors.watermarks.context import are_repeated, last_ids, num_seen
from processors.watermarks.synthid import BLOCK_DEPTHS, Tournament

__all__ = ["SynthId"]

_LEAST = 1e-300  # least losing mass in a tournament; its logarithm is finite
_SPARSE = 8  # if fewer than one in this many ids is finite, only the finite ones are processed


class SynthId(TableStage[SynthIdParams, Tournament]):
    """Multiply the probability of each token, depth after depth, by 1 + g - mean(g).

    g is the token's pseudorandom bit of the depth, 0 or 1. The context is the last ngram - 1 output ids,
    padded with zeros in front; the prompt is not included. After a context that is among the last `history`
    ones the row is unchanged.
    """

    name = "synthid"
    phase = Phase.GATE
    Params = SynthIdParams
    keeps_faults = True

    def tables(self, params: SynthIdParams) -> Tournament:
        """Return the table of the keys."""
        return Tournament(params, self.env.device)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Makes one pass for each distinct set of parameters."""
        places = self.places(rows)
        if len(places) == 1:
            return _played(next(iter(places)), logits, rows)
        for tournament, index in places.items():
            at = upload(index, logits.device)
            logits[at] = _played(tournament, logits[at], rows.select(index))
        return logits


def _played(tournament: Tournament, logits: Tensor, rows: Rows) -> Tensor:
    """Return logits [A, V] after all tournaments; rows without a watermark are unchanged."""
    params = tournament.params
    width = params.ngram - 1
    ids, count = last_ids(rows, width + min(params.history, num_seen(rows)), 0)
    skip = width if params.skip_first else 0
    is_plain = are_repeated(ids, count, width, skip=skip) | (count < skip)
    context = tournament.hashed(ids[:, -width:])
    parts = [_marked(tournament, logits[part], context[part], is_plain[part]) for part in row_parts(logits)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _marked(tournament: Tournament, logits: Tensor, context: Tensor, is_plain: Tensor) -> Tensor:
    """Return logits [A, V] plus the logarithms of all factors; rows `is_plain` [A] are unchanged."""
    finite = logits > -torch.inf
    peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
    if logits.is_cuda:  # sums by index are not reproducible on a GPU
        bits = tournament.bits(context[:, None], torch.arange(logits.shape[1], device=logits.device))
        masses = mass(logits, peak)
        moved = logits + _factors(masses / row_sums(masses), bits, tournament.depth)
    else:
        moved = _moved(tournament, logits, finite, peak, context)
    moved = moved.clamp_(min=LOWEST).float()
    return torch.where(finite & ~is_plain[:, None], moved, logits)


def _moved(tournament: Tournament, logits: Tensor, finite: Tensor, peak: Tensor, context: Tensor) -> Tensor:
    """Return logits [A, V] float64 plus the logarithms of all factors, on a CPU.

    The method of summation is chosen for each row alone, so its last bits do not depend on other rows.
    """
    few = finite.count_nonzero(1) * _SPARSE <= logits.shape[1]
    moved = logits.double()
    if bool(few.any()):
        row, ids = (finite & few[:, None]).nonzero(as_tuple=True)
        some = logits[row, ids]
        masses = mass(some, peak[row, 0])
        total = masses.new_zeros(len(logits)).index_add_(0, row, masses)
        bits = tournament.bits(context[row], ids)
        moved.index_put_((row, ids), some + _shift(masses.div_(total[row]), bits, row, tournament.depth))
    many = (~few).nonzero().squeeze(1)
    if len(many) == len(logits):
        moved += _shift_of_all(tournament, mass(logits, peak), context)
    elif len(many):
        moved[many] += _shift_of_all(tournament, mass(logits[many], peak[many]), context[many])
    return moved


def _shift_of_all(tournament: Tournament, masses: Tensor, context: Tensor) -> Tensor:
    """Return the logarithm of each token's factor [A, V], given the masses [A, V].

    Ids that differ by a multiple of the table's size have equal bits, so their masses are added first.
    """
    rows, width = masses.shape
    size = min(width, tournament.params.table_size)
    times = -(-width // size)
    folded = torch.nn.functional.pad(masses, (0, times * size - width)).view(rows, times, size).sum(1)
    folded /= folded.cumsum(1)[:, -1:]  # sums in the same order whatever the other rows are
    bits = tournament.bits(context[:, None], torch.arange(size)).flatten()
    row = torch.arange(rows).repeat_interleave(size)
    shift = _shift(folded.flatten(), bits, row, tournament.depth)
    return shift.view(rows, 1, size).expand(-1, times, -1).flatten(1)[:, :width]


def _shift(masses: Tensor, bits: Tensor, row: Tensor, depth: int) -> Tensor:
    """Return the logarithm of each token's factor [N], given its mass, bits and row.

    Tokens of a row with equal bits have equal factors, so several depths at a time are computed for the up to
    1024 classes of tokens with equal bits.
    """
    shift, rows = torch.zeros_like(masses), int(row[-1]) + 1 if len(row) else 0
    for first in range(0, depth, BLOCK_DEPTHS):
        depths = min(BLOCK_DEPTHS, depth - first)
        size = 2**depths
        of = row * size + (bits >> first & (size - 1))
        classes = masses.new_zeros(rows * size).index_add_(0, of, masses).view(rows, size)
        logs = _factors(classes, torch.arange(size)[None], depths).view(-1)
        shift += logs.index_select(0, of)
        masses = masses * logs.exp().index_select(0, of)
    return shift


def _factors(masses: Tensor, bits: Tensor, depth: int) -> Tensor:
    """Return the logarithms of the factors [A, N] of tokens, or of classes of tokens, by their bits.

    The masses [A, N] of each row sum to 1.
    """
    logs = torch.zeros_like(masses)
    for place in range(depth):
        wins = (bits >> place & 1).bool()
        lost = row_sums(masses.masked_fill(wins, 0)).clamp_(min=_LEAST)
        # 1 + g - mean, written with the losers' mass instead of 1 - mean: exact if nearly all tokens win.
        factor = torch.where(wins, 1 + lost, lost)
        masses = masses * factor
        logs += factor.log()
    return logs

"""The watermarks: `kgw` (a bias for green tokens, Kirchenbauer et al. 2023), `synthid` (tournaments of
pseudorandom bits, SynthID-Text), and `gumbel_mark` (of Aaronson, as in vLLM: noise from the key chooses the
token).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from processors.base import Admission, Env, Processor
from processors.catalog import Phase
from processors.catalog.watermarks import GumbelMarkParams, KgwParams, SynthIdParams
from processors.errors import ParamError
from processors.graphs import upload
from processors.kernels.operations import row_parts, row_sums
from processors.rng import (
    BLOCK_DEPTHS,
    LARGEST_NOISE,
    NUM_CANDIDATES,
    Green,
    Tournament,
    are_repeated,
    derived_key,
    gumbel_of,
    last_ids,
    num_seen,
    row_keys,
    signed,
    state_of,
    stream_key,
    uniform,
    uniforms,
)
from processors.rows import Rows
from processors.stages.shared import LOWEST, TableStage
from processors.stages.truncation import mass

_MOST_VOCAB = 2**18  # ids beside a smaller model; each context permutes the whole vocabulary


class Kgw(TableStage[KgwParams, Green]):
    """Add the bias to the logits of green tokens; with selfhash to those among the 40 most likely ones.

    The prompt is part of the context. A row whose context is shorter than `width` is not changed. Each
    context outside the cache of the last 256 costs one permutation of the vocabulary, with selfhash 40.
    ParamError at admission: no id is green, or the vocabulary is much larger than that of the model.
    """

    name = "kgw"
    phase = Phase.ADJUST
    Params = KgwParams
    keeps_faults = True

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._last: dict[int, tuple[int, ...]] = {}  # last ids on the host, for reads without synchronisation

    def admit(self, slot: int, params: KgwParams, request: Admission) -> None:
        """Take the last ids of the prompt as context."""
        super().admit(slot, params, request)
        self._last[slot] = request.prompt[-params.width :]

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        self._last[slot] = (*self._last[slot], *tokens)[-self._of[slot].params.width :]

    def release(self, slot: int) -> None:
        super().release(slot)
        self._last.pop(slot, None)

    def fork(self, source: int, target: int) -> None:
        super().fork(source, target)
        self._last[target] = self._last[source]

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. The mask of green ids of each row is made on the host."""
        width = logits.shape[1]
        tops = self._tops(logits, rows)
        masks = torch.zeros(len(rows), width, dtype=torch.bool)
        for row, (slot, drafts) in enumerate(zip(rows.host_slots, rows.host_drafts, strict=True)):
            context = (*self._last[slot], *drafts)
            green = self._of[slot]
            if len(context) < green.params.width:
                continue
            if not green.is_self:
                count = min(width, green.vocab)
                masks[row, :count] = green.after(context[-1])[:count]
                continue
            before = context[len(context) - green.params.width + 1 :]
            candidates = [token for token in tops[row] if token < green.vocab]
            are_green = green.among(before, candidates)
            masks[row, [token for token, is_green in zip(candidates, are_green, strict=True) if is_green]] = (
                True
            )
        bias = self.columns.gather("bias", rows)[:, None]
        masks = masks.to(logits.device, non_blocking=True)
        return torch.where(masks, logits + bias, logits)  # -inf stays -inf

    def _tops(self, logits: Tensor, rows: Rows) -> list[list[int]]:
        """Return the 40 most likely ids of each row, ties by lowest id; empty without selfhash."""
        if "selfhash" not in self.columns.known("scheme", rows):
            return []
        count = min(NUM_CANDIDATES, logits.shape[1])
        last = logits.topk(count, dim=1).values[:, -1:]
        tops = []
        for row, bound in zip(logits, last, strict=True):
            above = (row > bound).nonzero().flatten()
            ties = (row == bound).nonzero().flatten()[: count - len(above)]
            tops.append([*above.tolist(), *ties.tolist()])
        return tops

    def tables(self, params: KgwParams) -> Green:
        """Return the green tokens of the key."""
        width = self.env.vocab_size
        green = Green(params, params.vocab or width)
        if green.size < 1:
            raise ParamError(
                f"ratio is {params.ratio:g}, which makes no id of a vocabulary of {green.vocab} green. "
                "Take a larger one."
            )
        if green.vocab > max(_MOST_VOCAB, 2 * width):
            raise ParamError(f"vocab is {green.vocab}, but the model has {width} ids.")
        return green


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
    for position in range(depth):
        wins = (bits >> position & 1).bool()
        lost = row_sums(masses.masked_fill(wins, 0)).clamp_(min=_LEAST)
        # 1 + g - mean, written with the losers' mass instead of 1 - mean: exact if nearly all tokens win.
        factor = torch.where(wins, 1 + lost, lost)
        masses = masses * factor
        logs += factor.log()
    return logs


STREAM = stream_key("gumbel_mark")  # stream of the coin that chooses between two keys
_MISSING = -1  # in place of ids before the output
_NEAR = 4.0  # ids with logits within this distance of the largest are scored first


class GumbelMark(Processor[GumbelMarkParams]):
    """Mask all tokens but argmax(x - ln(-ln u)), u from the key, the last output ids and the token's id.

    Over random keys the token has the distribution softmax(x). A row whose context was used before is left
    unchanged, so the usual draw chooses its token; `deduplicate` selects where earlier contexts are searched.
    """

    name = "gumbel_mark"
    phase = Phase.GATE
    Params = GumbelMarkParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Makes one pass for each distinct width and scope."""
        groups: dict[tuple[int, str, int | None], list[int]] = {}
        for row, slot in enumerate(rows.host_slots):
            params = self._params(slot)
            groups.setdefault((params.width, params.deduplicate, params.history), []).append(row)
        keys = self._keys(rows)
        if len(groups) == 1:
            return _decided(logits, *self._contexts(rows), keys)
        for index in groups.values():
            at, some = upload(index, logits.device), rows.select(index)
            logits[at] = _decided(logits[at], *self._contexts(some), keys[at])
        return logits

    def _params(self, slot: int) -> GumbelMarkParams:
        return self.columns.params(slot)  # type: ignore[return-value]

    def _keys(self, rows: Rows) -> Tensor:
        """Return the key of each row [A]; with two keys the row's coin selects one."""
        pairs = [_pair(self._params(slot)) for slot in rows.host_slots]
        first, second = upload(pairs, rows.slots.device, torch.int64).unbind(1)
        coins = uniform(row_keys(rows.seeds, rows.positions, STREAM), torch.zeros_like(rows.seeds))
        shares = [self._params(slot).alpha or 0.0 for slot in rows.host_slots]
        return torch.where(coins < upload(shares, rows.slots.device, torch.float64), second, first)

    def _contexts(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the contexts [A, width], and which rows get no watermark [A], of rows with equal scopes."""
        params = self._params(rows.host_slots[0])
        width, has_prompt = params.width, params.deduplicate == "all"
        context, count = last_ids(rows, width, _MISSING)
        if params.deduplicate == "none":
            return context, torch.zeros_like(count, dtype=torch.bool)
        seen = num_seen(rows, prompt=has_prompt)
        num = seen if params.history is None else min(params.history, seen)
        ids, total = last_ids(rows, width + num, _MISSING, prompt=has_prompt)
        is_plain = are_repeated(ids, total, width)
        return context, is_plain | (count < width) if has_prompt else is_plain


def _pair(params: GumbelMarkParams) -> tuple[int, int]:
    """Return the key for tokens twice, or the two keys derived from it for `alpha`; as int64."""
    assert params.key is not None
    (key,) = params.key.numbers
    if params.alpha is None:
        return signed(key), signed(key)
    return signed(derived_key(key, "key_a")), signed(derived_key(key, "key_b"))


def _decided(logits: Tensor, context: Tensor, is_plain: Tensor, keys: Tensor) -> Tensor:
    """Return logits [A, V] with all but the decided token masked; rows `is_plain` [A] are unchanged."""
    peak = logits.amax(1, keepdim=True)
    is_plain = is_plain[:, None] | ~(peak.abs() < torch.inf)  # one token at most, or a fault
    state = state_of(keys, context)
    if logits.is_cuda:  # selecting would synchronise
        ids = torch.arange(logits.shape[1], device=logits.device)
        scores = logits.double() + gumbel_of(uniforms([word[:, None] for word in state], ids))
        winners = scores.argmax(1, keepdim=True)
    else:
        winners = _winners(logits, peak, state)
        winners = torch.where(is_plain, 0, winners)
    alone = torch.full_like(logits, -torch.inf).scatter_(1, winners, logits.gather(1, winners))
    return torch.where(is_plain, logits, alone)


def _winners(logits: Tensor, peak: Tensor, state: Sequence[Tensor]) -> Tensor:
    """Return the id of the best score of each row [A, 1], the lowest of equals; V if there is none.

    The ids near the largest logit are scored first. Other ids are scored only if their logit plus the largest
    possible noise may exceed the best score, which leaves few ids of a peaked distribution.
    """
    is_near = logits >= peak - _NEAR
    row, ids, scores = _scored(logits, is_near, state)
    best = scores.new_full((len(logits),), -math.inf).scatter_reduce_(0, row, scores, "amax")
    is_far = (logits >= (best - LARGEST_NOISE).float()[:, None]) & ~is_near
    parts = zip((row, ids, scores), _scored(logits, is_far, state), strict=True)
    row, ids, scores = (torch.cat(pair) for pair in parts)
    best.scatter_reduce_(0, row, scores, "amax")
    beyond = logits.shape[1]
    winners = torch.where(scores == best[row], ids, beyond)
    return ids.new_full((len(logits),), beyond).scatter_reduce_(0, row, winners, "amin")[:, None]


def _scored(logits: Tensor, mask: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return row, id and score [N] of the logits selected by the mask [A, V]."""
    row, ids = mask.nonzero(as_tuple=True)
    noise = gumbel_of(uniforms([word.index_select(0, row) for word in state], ids))
    return row, ids, logits[row, ids].double() + noise

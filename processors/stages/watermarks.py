"""The watermarks: `kgw` (a bias for green tokens, Kirchenbauer et al. 2023), `synthid` (tournaments of
pseudorandom bits, SynthID-Text), and `gumbel_mark` (of Aaronson, as in vLLM: noise from the key chooses the
token).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from processors.base import Admission, Env, Processor
from processors.errors import ParamError
from processors.later import graphs, operations, rng, torch
from processors.params import Note, Params, Phase, Secret, param, parameters
from processors.stages.shared import LOWEST, TableStage, grouped
from processors.stages.truncation import mass

if TYPE_CHECKING:
    from torch import Tensor

    from processors.rows import Rows

_MOST_VOCAB = 2**18  # ids beside a smaller model; each context permutes the whole vocabulary


_INT64 = 2**63 - 1


@parameters
class KgwParams(Params):
    """Make pseudorandomly chosen tokens, the green ones, more likely (Kirchenbauer et al. 2023)."""

    key: Secret | None = param(None, "The key, a whole number below 2**63; null is off.")
    ratio: float = param(0.25, "Part of the vocabulary that is green.", gt=0, lt=1)
    bias: float = param(2.0, "Added to the logits of green tokens.", ge=-1000, le=1000)
    scheme: Literal["lefthash", "selfhash"] = param(
        "lefthash",
        "What decides which tokens are green: the token before (lefthash), or the smallest hash of the "
        "context and the token itself (selfhash).",
    )
    width: int = param(1, "Tokens of the context; with selfhash they include the token itself.", ge=1, le=64)
    vocab: int | None = param(
        None, "Size of the vocabulary that is divided; null is the number of logits.", ge=2, le=2**24
    )

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        _refuse_keys(self.key, count=1, limit=_INT64)


class Kgw(TableStage[KgwParams, "rng.Green"]):
    """Add the bias to the logits of green tokens; with selfhash to those among the 40 most likely ones.

    The prompt is part of the context. A row whose context is shorter than `width` is not changed. Each
    context outside the cache of the last 256 costs one permutation of the vocabulary, with selfhash 40.
    ParamError at admission: no id is green, or the vocabulary is much larger than that of the model.
    """

    name = "kgw"
    phase = Phase.ADJUST
    Params = KgwParams
    keeps_faults = True
    about = Note(
        "x[i] = x[i] + bias where i is green: one of the first ratio * V ids of a permutation that is "
        "seeded by key and context",
        "Kirchenbauer et al. 2023, A Watermark for Large Language Models, arXiv 2301.10226; On the "
        "Reliability of Watermarks for Large Language Models, arXiv 2306.04634.",
        "kgw:key=15485863,bias=2.5",
        "transformers WatermarkingConfig (the same green tokens on a CPU; there after truncation)",
    )

    example_values = (
        {"key": 15485863},
        {"key": 2**63 - 1, "ratio": 0.5, "bias": -3.0, "width": 3, "vocab": 200},
        {"key": 15485863, "scheme": "selfhash", "bias": 1000.0},
        {"key": 15485863, "scheme": "selfhash", "width": 4, "vocab": 1000},
    )

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        # The last ids on the host, for reads without synchronisation.
        self._last: dict[int, tuple[int, ...]] = self.by_slot()

    def admit(self, slot: int, params: KgwParams, request: Admission) -> None:
        """Take the last ids of the prompt as context."""
        super().admit(slot, params, request)
        self._last[slot] = request.prompt[-params.width :]

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        self._last[slot] = (*self._last[slot], *tokens)[-self._of[slot].params.width :]

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
        count = min(rng.NUM_CANDIDATES, logits.shape[1])
        last = logits.topk(count, dim=1).values[:, -1:]
        tops = []
        for row, bound in zip(logits, last, strict=True):
            above = (row > bound).nonzero().flatten()
            ties = (row == bound).nonzero().flatten()[: count - len(above)]
            tops.append([*above.tolist(), *ties.tolist()])
        return tops

    def tables(self, params: KgwParams) -> rng.Green:
        """Return the green tokens of the key."""
        width = self.env.vocab_size
        green = rng.Green(params, params.vocab or width)
        if green.size < 1:
            raise ParamError(
                f"ratio is {params.ratio:g}, which makes no id of a vocabulary of {green.vocab} green. "
                "Take a larger one."
            )
        if green.vocab > max(_MOST_VOCAB, 2 * width):
            raise ParamError(f"vocab is {green.vocab}, but the model has {width} ids.")
        return green


def _refuse_keys(key: Secret | None, *, count: int, limit: int | None = None) -> None:
    """Raise ParamError, without the value, for too many numbers, or one above the limit."""
    numbers = key.numbers if key is not None else ()
    if len(numbers) > count:
        raise ParamError(f"key has {len(numbers)} numbers, but has to have at most {count}.")
    if limit is not None and any(number > limit for number in numbers):
        raise ParamError("key has a number of 2**63 or more, but it has to be below.")


_LEAST = 1e-300  # least losing mass in a tournament; its logarithm is finite
_SPARSE = 8  # if fewer than one in this many ids is finite, only the finite ones are processed


_MOST_DEPTH = 60
_TABLE_SIZES = [2**bits for bits in range(1, 21)]


@parameters
class SynthIdParams(Params):
    """Choose among the model's tokens by tournaments of pseudorandom bits (Dathathri et al. 2024)."""

    key: Secret | None = param(
        None, f"The keys, one for each tournament: 1 to {_MOST_DEPTH} whole numbers below 2**63; null is off."
    )
    ngram: int = param(5, "Tokens whose hash decides the bits: the context and the token.", ge=2, le=64)
    table_size: int = param(65536, "Number of bits in the table, a power of 2.", ge=2, le=2**20)
    table_seed: int = param(0, "Seed of the table.", ge=0, le=_INT64 // 4)
    history: int = param(
        1024, "A context that is among this many before it gets no mark again.", ge=1, le=65536
    )
    skip_first: bool = param(False, "Leave the first ngram - 1 tokens without a mark.")

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        _refuse_keys(self.key, count=_MOST_DEPTH, limit=_INT64)
        if self.table_size not in _TABLE_SIZES:
            raise ParamError(f"table_size is {self.table_size}, but has to be a power of 2.")


class SynthId(TableStage[SynthIdParams, "rng.Tournament"]):
    """Multiply the probability of each token, depth after depth, by 1 + g - mean(g).

    g is the token's pseudorandom bit of the depth, 0 or 1. The context is the last ngram - 1 output ids,
    padded with zeros in front; the prompt is not included. After a context that is among the last `history`
    ones the row is unchanged.
    """

    name = "synthid"
    phase = Phase.GATE
    Params = SynthIdParams
    keeps_faults = True
    about = Note(
        "p[i] = p[i] * (1 + g[d, i] - sum_j g[d, j] p[j]) for each depth d; g[d, i] is a bit of the "
        "table at hash(context, i, key[d])",
        "Dathathri et al. 2024, Scalable watermarking for identifying large language model outputs, "
        "Nature 634.",
        "synthid:key=[654,400,836]",
        "transformers SynthIDTextWatermarkingConfig (the same bits; there a masked token comes back)",
    )

    example_values = (
        {"key": (654, 400, 836, 123, 340, 443, 597, 160, 57, 29, 590, 639)},
        {"key": 0, "ngram": 2, "table_size": 64, "table_seed": 2**60, "history": 1},
        {"key": (1, 2**63 - 1), "ngram": 3, "skip_first": True},
    )

    def tables(self, params: SynthIdParams) -> rng.Tournament:
        return rng.Tournament(params, self.env.device)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Makes one pass for each distinct set of parameters."""
        places = self.places(rows)
        if len(places) == 1:
            return _played(next(iter(places)), logits, rows)
        for tournament, index in places.items():
            at = graphs.upload(index, logits.device)
            logits[at] = _played(tournament, logits[at], rows.select(index))
        return logits


def _played(tournament: rng.Tournament, logits: Tensor, rows: Rows) -> Tensor:
    """Return logits [A, V] after all tournaments; rows without a watermark are unchanged."""
    params = tournament.params
    width = params.ngram - 1
    ids, count = rng.last_ids(rows, width + min(params.history, rng.num_seen(rows)), 0)
    skip = width if params.skip_first else 0
    is_plain = rng.are_repeated(ids, count, width, skip=skip) | (count < skip)
    context = tournament.hashed(ids[:, -width:])
    parts = [
        _marked(tournament, logits[part], context[part], is_plain[part])
        for part in operations.row_parts(logits)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _marked(tournament: rng.Tournament, logits: Tensor, context: Tensor, is_plain: Tensor) -> Tensor:
    """Return logits [A, V] plus the logarithms of all factors; rows `is_plain` [A] are unchanged."""
    finite = logits > -torch.inf
    peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
    if logits.is_cuda:  # sums by index are not reproducible on a GPU
        bits = tournament.bits(context[:, None], torch.arange(logits.shape[1], device=logits.device))
        masses = mass(logits, peak)
        moved = logits + _factors(masses / operations.row_sums(masses), bits, tournament.depth)
    else:
        moved = _moved(tournament, logits, finite, peak, context)
    moved = moved.clamp_(min=LOWEST).float()
    return torch.where(finite & ~is_plain[:, None], moved, logits)


def _moved(
    tournament: rng.Tournament, logits: Tensor, finite: Tensor, peak: Tensor, context: Tensor
) -> Tensor:
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


def _shift_of_all(tournament: rng.Tournament, masses: Tensor, context: Tensor) -> Tensor:
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
    for first in range(0, depth, rng.BLOCK_DEPTHS):
        depths = min(rng.BLOCK_DEPTHS, depth - first)
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
        lost = operations.row_sums(masses.masked_fill(wins, 0)).clamp_(min=_LEAST)
        # 1 + g - mean, written with the losers' mass instead of 1 - mean: exact if nearly all tokens win.
        factor = torch.where(wins, 1 + lost, lost)
        masses = masses * factor
        logs += factor.log()
    return logs


_MISSING = -1  # in place of ids before the output
_NEAR = 4.0  # ids with logits within this distance of the largest are scored first


@parameters
class GumbelMarkParams(Params):
    """Draw with noise that the key and the last tokens decide (Aaronson 2022): the draw is not changed."""

    key: Secret | None = param(None, "The key, a whole number below 2**64; null is off.")
    width: int = param(4, "Output tokens of the context.", ge=1, le=64)
    deduplicate: Literal["single_turn", "all", "none"] = param(
        "single_turn",
        "Where a context may not have been for a token to be marked: in the output, also in the prompt (the "
        "first tokens are then not marked), or anywhere.",
    )
    history: int | None = param(
        8192, "How many contexts before it a context is compared with; null is all.", ge=1, le=2**24
    )
    alpha: float | None = param(
        None, "With two keys derived from the key: how often the second is used; null is one key.", ge=0, le=1
    )

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        _refuse_keys(self.key, count=1)


class GumbelMark(Processor[GumbelMarkParams]):
    """Mask all tokens but argmax(x - ln(-ln u)), u from the key, the last output ids and the token's id.

    Over random keys the token has the distribution softmax(x). A row whose context was used before is left
    unchanged, so the usual draw chooses its token; `deduplicate` selects where earlier contexts are searched.
    """

    name = "gumbel_mark"
    phase = Phase.GATE
    Params = GumbelMarkParams
    keeps_faults = True
    about = Note(
        "x[i] = -inf unless i = argmax(x - ln(-ln u)), u[i] = Philox4x32-10(key, context, i)",
        "Aaronson 2022, Watermarking of Large Language Models; Salmon et al. 2011, Parallel Random "
        "Numbers: As Easy as 1, 2, 3.",
        "gumbel_mark:key=42",
        "vLLM watermarking gumbel and dual_key_gumbel (the same u)",
    )

    example_values = (
        {"key": 15485863},
        {"key": 2**64 - 1, "width": 1, "deduplicate": "none"},
        {"key": 15485863, "width": 2, "deduplicate": "all", "history": None},
        {"key": 15485863, "width": 6, "alpha": 1.0, "history": 1},
    )

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Makes one pass for each distinct width and scope."""
        params = map(self._params, rows.host_slots)
        groups = grouped((each.width, each.deduplicate, each.history) for each in params)
        keys = self._keys(rows)
        if len(groups) == 1:
            return _decided(logits, *self._contexts(rows), keys)
        for index in groups.values():
            at, some = graphs.upload(index, logits.device), rows.select(index)
            logits[at] = _decided(logits[at], *self._contexts(some), keys[at])
        return logits

    def _params(self, slot: int) -> GumbelMarkParams:
        return self.columns.params(slot)  # type: ignore[return-value]

    def _keys(self, rows: Rows) -> Tensor:
        """Return the key of each row [A]; with two keys the row's coin selects one."""
        pairs = [_pair(self._params(slot)) for slot in rows.host_slots]
        first, second = graphs.upload(pairs, rows.slots.device, torch.int64).unbind(1)
        keys = rng.row_keys(rows.seeds, rows.positions, rng.stream_key("gumbel_mark"))  # of the coins
        coins = rng.uniform(keys, torch.zeros_like(keys))
        shares = [self._params(slot).alpha or 0.0 for slot in rows.host_slots]
        return torch.where(coins < graphs.upload(shares, rows.slots.device, torch.float64), second, first)

    def _contexts(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the contexts [A, width], and which rows get no watermark [A], of rows with equal scopes."""
        params = self._params(rows.host_slots[0])
        width, has_prompt = params.width, params.deduplicate == "all"
        context, count = rng.last_ids(rows, width, _MISSING)
        if params.deduplicate == "none":
            return context, torch.zeros_like(count, dtype=torch.bool)
        seen = rng.num_seen(rows, prompt=has_prompt)
        num = seen if params.history is None else min(params.history, seen)
        ids, total = rng.last_ids(rows, width + num, _MISSING, prompt=has_prompt)
        is_plain = rng.are_repeated(ids, total, width)
        return context, is_plain | (count < width) if has_prompt else is_plain


def _pair(params: GumbelMarkParams) -> tuple[int, int]:
    """Return the key for tokens twice, or the two keys derived from it for `alpha`; as int64."""
    assert params.key is not None
    (key,) = params.key.numbers
    if params.alpha is None:
        return rng.signed(key), rng.signed(key)
    return rng.signed(rng.derived_key(key, "key_a")), rng.signed(rng.derived_key(key, "key_b"))


def _decided(logits: Tensor, context: Tensor, is_plain: Tensor, keys: Tensor) -> Tensor:
    """Return logits [A, V] with all but the decided token masked; rows `is_plain` [A] are unchanged."""
    peak = logits.amax(1, keepdim=True)
    is_plain = is_plain[:, None] | ~(peak.abs() < torch.inf)  # one token at most, or a fault
    state = rng.state_of(keys, context)
    if logits.is_cuda:  # selecting would synchronise
        ids = torch.arange(logits.shape[1], device=logits.device)
        scores = logits.double() + rng.gumbel_of(rng.uniforms([word[:, None] for word in state], ids))
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
    is_far = (logits >= (best - rng.LARGEST_NOISE).float()[:, None]) & ~is_near
    parts = zip((row, ids, scores), _scored(logits, is_far, state), strict=True)
    row, ids, scores = (torch.cat(pair) for pair in parts)
    best.scatter_reduce_(0, row, scores, "amax")
    beyond = logits.shape[1]
    winners = torch.where(scores == best[row], ids, beyond)
    return ids.new_full((len(logits),), beyond).scatter_reduce_(0, row, winners, "amin")[:, None]


def _scored(logits: Tensor, mask: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return row, id and score [N] of the logits selected by the mask [A, V]."""
    row, ids = mask.nonzero(as_tuple=True)
    noise = rng.gumbel_of(rng.uniforms([word.index_select(0, row) for word in state], ids))
    return row, ids, logits[row, ids].double() + noise

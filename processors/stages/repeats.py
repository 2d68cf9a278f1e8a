"""The stages `no_repeat_ngram`, `dry` and `lz`: tokens that would continue a repetition of the last tokens.

A copy is an earlier token in scope whose preceding tokens equal the last tokens of the text; choosing the
same token again would extend the repetition.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from processors.base import Admission, Env, Processor
from processors.catalog import Phase
from processors.catalog.repeats import DryParams, LzParams, NoRepeatNgramParams
from processors.rows import Rows
from processors.stages.cuts import Cuts
from processors.stages.suffixes import Suffixes
from processors.stages.tokens import HIGHEST, LOWEST, exempt_ids
from processors.stages.words import place, quoted
from processors.upload import upload_ints

__all__ = ["Dry", "Lz", "NoRepeatNgram"]

P = TypeVar("P", bound=NoRepeatNgramParams | DryParams | LzParams)
_LOG_OF_MOST = 88.7228391  # ln of the largest float32; dry keeps base^exponent below it


@dataclass(frozen=True, slots=True, eq=False)
class _Copies:
    """Copies of each row: ids [A, W], each below V; `is_open` [A, W] where a penalty is allowed.

    lengths [A, W]: tokens before the copy that equal the last tokens, up to a cut. before [A, W]: tokens in
    scope before the copy. distance [A, W]: distance from the end, 1 for the last token. limit [A, 1]: tokens
    since the latest cut.
    """

    ids: Tensor
    lengths: Tensor
    is_open: Tensor
    before: Tensor
    limit: Tensor
    distance: Tensor


class _Repeats(Processor[P]):
    """Base of stages that lower the logits of copies. Drafts that a row sees are part of its text.

    A token forced by a grammar is never a copy or part of a repetition.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._suffixes = Suffixes(env.device)
        self._cuts = Cuts(env)

    def admit(self, slot: int, params: P, request: Admission) -> None:
        """Set the state after the prompt. TokenError for an exempt text that is not one token."""
        super().admit(slot, params, request)
        self._suffixes.admit(slot, request.prompt)
        exempt = exempt_ids(params.exempt, self.env, request, self.name)
        self._cuts.admit(slot, request.prompt, exempt=exempt, what=self.name, **self._breakers(params))

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Advance the slot by committed tokens."""
        self._suffixes.commit(slot, tokens)
        self._cuts.commit(slot, tokens)

    def release(self, slot: int) -> None:
        """Drop the slot."""
        self._suffixes.release(slot)
        self._cuts.release(slot)

    def fork(self, source: int, target: int) -> None:
        """Copy the slot's state."""
        super().fork(source, target)
        self._suffixes.copy(source, target)
        self._cuts.copy(source, target)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Among several copies of a token the lowest result counts."""
        copies = self._copies(logits.shape[1], rows)
        if copies is None:
            return logits
        old = logits.gather(1, copies.ids)
        new = torch.where(copies.is_open, self._lowered(old, copies, rows), old)
        return logits.scatter_reduce_(1, copies.ids, new, "amin")

    def notes(self, rows: Rows, tokens: Sequence[int]) -> list[str]:
        """Return for each row which tokens its token would repeat, their position, and the penalty."""
        copies = self._copies(self.env.vocab_size, rows)
        if copies is None:
            return [""] * len(rows)
        is_own = copies.is_open & (copies.ids == upload_ints(tokens, copies.ids.device)[:, None])
        zero = torch.zeros(copies.ids.shape, device=copies.ids.device)
        penalty = torch.where(is_own, -self._lowered(zero, copies, rows), 0)
        texts, longest = rows.visible().ids.tolist(), torch.where(is_own, copies.lengths, -1).max(1)
        totals = (rows.history.lengths[rows.slots] + rows.offsets).tolist()
        prompts = rows.history.prompt_lengths[rows.slots].tolist()
        wheres = map(place, longest.indices.tolist(), prompts)
        each = zip(
            tokens, texts, totals, longest.values.tolist(), wheres, penalty.amax(1).tolist(), strict=True
        )
        return [
            "" if size < 0 else self._note([*text[total - size : total], token], where, subtracted)
            for token, text, total, size, where, subtracted in each
        ]

    def _note(self, ids: Sequence[int], where: str, penalty: float) -> str:
        """Return the note for a token that would complete a copy of `ids`, whose last token is at `where`."""
        text = f"would repeat {quoted(ids, self.env.vocabulary)}, {len(ids)} tokens, as at {where}"
        return text if penalty == math.inf else f"{text}: -{penalty:.3g}"

    def idle(self, rows: Rows) -> list[str]:
        """Return the reason: no repetition."""
        return ["no tail repeats"] * len(rows)

    @abstractmethod
    def _lowered(self, old: Tensor, copies: _Copies, rows: Rows) -> Tensor:
        """Return the logit [A, W] float32 of each copy, lowered from `old` [A, W]."""

    def _breakers(self, params: P) -> dict[str, Any]:
        return {}

    def _copies(self, width: int, rows: Rows) -> _Copies | None:
        """Return the copies of each row; None if every row is empty."""
        ids = rows.visible().ids
        if not ids.shape[1]:
            return None
        scope = self.columns.gather("scope", rows)  # prompt 0, output 1, both 2
        start, end = rows.bounds(scope != 1, scope != 0, self.columns.gather("window", rows))
        column = torch.arange(ids.shape[1], device=ids.device)
        before, limit = column - start[:, None], self._cuts.num_since(rows)[:, None]
        is_open = (before >= 0) & (column < end[:, None]) & (ids < width)
        lengths = torch.minimum(self._suffixes.gather(rows, ids), torch.minimum(before, limit))
        total = (rows.history.lengths[rows.slots] + rows.offsets)[:, None]
        if rows.has_forced:
            chosen = rows.unforced(ids.shape[1])
            runs = _runs(chosen)
            limit = torch.minimum(limit, runs.gather(1, total))
            lengths, is_open = torch.minimum(lengths, torch.minimum(runs[:, :-1], limit)), is_open & chosen
        ids = ids.clamp(0, width - 1)
        is_open &= ~self._cuts.is_spared(ids, rows)
        return _Copies(ids, lengths, is_open, before, limit, total - column)


def _runs(chosen: Tensor) -> Tensor:
    """Return for each column of flags [A, W], and one more, how many flags right before it are set."""
    column = torch.arange(1, chosen.shape[1] + 1, device=chosen.device)
    latest = torch.where(chosen, 0, column).cummax(1).values  # the column after the latest unset flag
    return torch.nn.functional.pad(column - latest, (1, 0))


class NoRepeatNgram(_Repeats[NoRepeatNgramParams]):
    """Mask tokens that would repeat n tokens in a row (Paulus, Xiong and Socher 2017)."""

    name = "no_repeat_ngram"
    phase = Phase.CONSTRAIN
    Params = NoRepeatNgramParams

    def _lowered(self, old: Tensor, copies: _Copies, rows: Rows) -> Tensor:
        is_repeated = copies.lengths >= self.columns.gather("n", rows)[:, None] - 1
        return old.masked_fill(is_repeated, -math.inf)


class Dry(_Repeats[DryParams]):
    """x = x - multiplier * base^(n - allowed) for tokens that continue a repetition of n tokens (p-e-w 2024).

    TokenError at admission: breakers without a tokenizer, an exempt text that is not one token.
    """

    name = "dry"
    phase = Phase.ADJUST
    Params = DryParams
    keeps_faults = True

    def _breakers(self, params: DryParams) -> dict[str, Any]:
        return {"breakers": params.breakers, "spares_breakers": not params.strict}

    def _lowered(self, old: Tensor, copies: _Copies, rows: Rows) -> Tensor:
        allowed = self.columns.gather("allowed", rows)[:, None]
        base = self.columns.exact("base", rows)[:, None]
        lengths = torch.minimum(copies.lengths, self.columns.gather("max_ngram", rows)[:, None])
        has_penalty = (lengths >= allowed) & (copies.before > 0)  # the first continues nothing
        if True in self.columns.known("strict", rows):
            is_strict = self.columns.gather("strict", rows)[:, None]
            has_penalty &= ~is_strict | (copies.limit > allowed)
        most = (_LOG_OF_MOST / base.log()).floor()
        penalty = base ** torch.minimum((lengths - allowed).double(), most)
        penalty *= self.columns.exact("multiplier", rows)[:, None]
        if "count" in self.columns.known("matches", rows):
            is_counted = self.columns.gather("matches", rows)[:, None] == 1  # max 0, count 1
            is_open = has_penalty & copies.is_open
            longest = torch.where(is_open, lengths, -1).amax(1, keepdim=True)
            has_penalty &= ~is_counted | (lengths == longest)
            count = _counts(copies.ids, has_penalty & copies.is_open)
            penalty = torch.where(is_counted, penalty * count, penalty)
        return _minus(old, torch.where(has_penalty, penalty, 0))


class Lz(_Repeats[LzParams]):
    """x = x - strength * (bits that a Lempel-Ziv code saves on the token) (Ginart et al. 2025).

    A copy at distance d, after k - 1 tokens that equal the last ones, codes k tokens in log2(d + 1) + log2 k
    bits; a token without a copy takes log2 V bits.
    """

    name = "lz"
    phase = Phase.ADJUST
    Params = LzParams
    keeps_faults = True

    def _lowered(self, old: Tensor, copies: _Copies, rows: Rows) -> Tensor:
        size = torch.minimum(copies.lengths, self.columns.gather("length", rows)[:, None]).clamp_(min=0) + 1
        bits = ((copies.distance + 1).clamp(min=2).double().log2() + size.double().log2()) / size
        saved = (math.log2(self.env.vocab_size) - bits).clamp_(min=0)
        return _minus(old, self.columns.exact("strength", rows)[:, None] * saved)


def _minus(old: Tensor, penalty: Tensor) -> Tensor:
    """Return old - penalty in float32, clamped to finite values; infinite logits are unchanged."""
    new = (old.double() - penalty).clamp_(LOWEST, HIGHEST)
    return torch.where(old.isinf(), old, new.float())


def _counts(ids: Tensor, where: Tensor) -> Tensor:
    """Return for each entry of ids [A, W] how often its id occurs among entries with `where` [A, W] True."""
    chosen = torch.where(where, ids, -1)
    ordered = chosen.sort(1).values
    return torch.searchsorted(ordered, chosen, right=True) - torch.searchsorted(ordered, chosen)

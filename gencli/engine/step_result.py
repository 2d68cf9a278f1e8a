"""The result of a step, copied to the host in one transfer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from gencli.core.events import TokenLogprobs
from gencli.engine.beams.searches import RankedSearch, RankedSearches
from gencli.engine.branches import Inspect
from gencli.engine.contrastive.searches import Choice, Choices
from gencli.engine.feeds import SampledSequences
from gencli.engine.logprobs import Measured
from gencli.engine.prompt_scores import Scored
from processors.rows import Rows
from processors.upload import start_download, upload
from processors.verify import matched

__all__ = ["StepResult", "Verified", "first_rows", "own_logprobs"]

# Tokens [Q, K + 1] and the number of valid ones [Q]; or the tokens [R] of all rows and None, where the drafts
# are accepted that equal them: the host does that, as it reads them anyway.
Verified = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, slots=True)
class StepResult:
    """The accepted and sampled tokens of each sequence; -1 if no token could be chosen.

    `logits` [R, V]: after guidance, before stages. `logprobs`: log-probability of each token under the
    model's own logits, for best-of requests; else 0 or empty. `searches`: beam searches, whose tokens are not
    chosen yet. `choices`: choices of contrastive searches. `entries`: TokenLogprobs of each token, by
    sequence, for requests with log-probabilities. `inspect`: computes the entries of beams and candidates.
    """

    sampled: SampledSequences
    logits: Tensor
    rows: Rows
    tokens: list[list[int]]
    logprobs: list[list[float]]
    searches: list[RankedSearch] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    entries: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
    inspect: Inspect | None = None

    @classmethod
    def read(
        cls,
        sampled: SampledSequences,
        own: Tensor,
        logits: Tensor,
        rows: Rows,
        verified: Verified,
        ranked: RankedSearches | None = None,
        choices: Choices | None = None,
        measured: tuple[Measured, list[int]] | None = None,
        scored: Scored | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> StepResult:
        """Build from the verified tokens. `own` [R, V]: the model's logits.

        `measured`: rows with log-probabilities, and the index of each row's sequence. `scored`: prompt
        positions, whose scorings get their entries here. `meanwhile` launches the next work of the device; it
        is called once, before the host waits for the values.
        """
        tokens, counts = verified
        if counts is None:
            return cls._matched(sampled, logits, rows, tokens, scored, meanwhile)
        width = tokens.shape[1]
        wanted = [bool(sequence.request.best_of) for sequence, _ in sampled]
        is_plain = ranked is None and choices is None and measured is None and scored is None
        if width == 1 and is_plain and not any(wanted):
            plain = _read(tokens, meanwhile)
            return cls(sampled, logits, rows, plain, [[]] * len(plain))
        table = torch.cat([counts[:, None], tokens], dim=1)
        if any(wanted):  # in float64, which represents every token exactly
            table = torch.cat([table, own_logprobs(own, rows, tokens, wanted)], dim=1)
        packed = [ranked.ranking.packed] if ranked else []
        packed += [choices.packed] if choices else []
        packed += [measured[0].packed] if measured else []
        packed += [scored.measured.packed.to(table.device)] if scored else []
        values, *more = _transfer(table, *packed, meanwhile=meanwhile)
        parts = iter(more)
        searches = ranked.read(next(parts)) if ranked else []
        chosen = choices.read(next(parts)) if choices else []
        entries = _by_owner(*measured, next(parts)) if measured else {}
        if scored:
            scored.take(next(parts))
        lines = [(int(count), rest) for count, *rest in values]
        ids = [[int(token) for token in values[:count]] for count, values in lines]
        logprobs = [values[width:][:count] for count, values in lines]
        return cls(sampled, logits, rows, ids, logprobs, searches, chosen, entries)

    @classmethod
    def _matched(
        cls,
        sampled: SampledSequences,
        logits: Tensor,
        rows: Rows,
        tokens: Tensor,
        scored: Scored | None,
        meanwhile: Callable[[], None] | None,
    ) -> StepResult:
        """As `read`, for tokens [R] of rows whose drafts are to be matched."""
        packed = [scored.measured.packed.to(tokens.device)] if scored else []
        values, *more = _transfer(tokens[:, None], *packed, meanwhile=meanwhile)
        if scored:
            scored.take(more[0])
        ids = matched([int(token) for (token,) in values], rows)
        return cls(sampled, logits, rows, ids, [[]] * len(ids))

    @property
    def first_rows(self) -> list[int]:
        """Index of the first row of each sampled sequence."""
        return first_rows(self.rows)


def first_rows(rows: Rows) -> list[int]:
    """Index of the first row of each request."""
    return [0, *accumulate(rows.counts)][:-1] if rows.drafts.shape[1] else [*range(len(rows.counts))]


def _transfer(table: Tensor, *packed: Tensor, meanwhile: Callable[[], None] | None) -> list[list[Any]]:
    """Copy tables [Q, N] and lists [M] to the host: the only device synchronisation of the step."""
    if not packed:
        return [_read(table, meanwhile)]
    every = (table, *packed)
    flat = _read(torch.cat([one.double().flatten() for one in every]), meanwhile)
    ends = [*accumulate(one.numel() for one in every)]
    parts = [flat[end - one.numel() : end] for one, end in zip(every, ends, strict=True)]
    return [
        _rows(part, one.shape[1]) if one.dim() > 1 else part for part, one in zip(parts, every, strict=True)
    ]


def _read(table: Tensor, meanwhile: Callable[[], None] | None) -> list[Any]:
    """Return the values of a tensor. On a GPU the host does not wait for work launched by `meanwhile`."""
    if meanwhile is None:
        found: list[Any] = table.tolist()
        return found
    read = start_download(table)
    meanwhile()
    return read()


def _rows(flat: list[float], width: int) -> list[list[float]]:
    return [flat[start : start + width] for start in range(0, len(flat), width)]


def _by_owner(
    measured: Measured, owners: list[int], values: list[list[float]]
) -> dict[int, list[TokenLogprobs]]:
    """Return the entries of each sequence, by its index."""
    found = dict[int, list[TokenLogprobs]]()
    for owner, entry in zip(owners, measured.read(values), strict=True):
        found.setdefault(owner, []).append(entry)
    return found


def own_logprobs(logits: Tensor, rows: Rows, tokens: Tensor, wanted: Sequence[bool]) -> Tensor:
    """Return log-probabilities [Q, K + 1] float64 of tokens [Q, K + 1]; 0 for requests not `wanted`.

    `logits` [R, V]: the model's own logits. Token j of a request belongs to the request's row j.
    """
    owners = [owner for owner, count in enumerate(rows.counts) for _ in range(count)]
    mine = [row for row, owner in enumerate(owners) if wanted[owner]]
    at, owner = upload([mine, [owners[row] for row in mine]], tokens.device)
    offsets = rows.offsets[at]
    table = logits.to(tokens.device)[at].double().log_softmax(-1)
    found = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
    found[owner, offsets] = table.gather(1, tokens[owner, offsets, None].clamp(min=0)).squeeze(1)
    return found

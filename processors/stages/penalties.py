"""The stages `repetition`, `frequency` and `presence`: penalties on tokens that already occurred."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor

from processors.base import Admission
from processors.catalog import FrequencyParams, PenaltyParams, Phase, PresenceParams, RepetitionParams
from processors.rows import Rows
from processors.stages.lists import IdStage
from processors.stages.tokens import edit, token_id

__all__ = ["Frequency", "Penalty", "Presence", "Repetition"]


class Penalty(IdStage[PenaltyParams]):
    """Base of the penalties: count the tokens in scope and edit their logits.

    Counts come from sorting the ids in scope, without a table of slots x vocabulary. The listed ids are the
    exempt ones. TokenError at admission: an exempt text that is not one token.
    """

    phase = Phase.ADJUST
    keeps_faults = True

    @abstractmethod
    def penalised(self, old: Tensor, counts: Tensor, penalty: Tensor) -> Tensor:
        """Return new values of logits [A, N] whose tokens occurred counts [A, N] times; penalty is [A, 1]."""

    def listed(self, params: PenaltyParams, request: Admission) -> Iterable[int]:
        """Return the exempt ids: those of the keywords and those named singly."""
        vocabulary = self.env.vocabulary
        keywords = {
            "special": vocabulary.special_ids if vocabulary else frozenset(),
            "stop": {*self.env.eos_ids, *request.stop_ids},
        }
        ids: set[int] = set()
        for key in params.exempt:
            if isinstance(key, str) and key in keywords:
                ids |= keywords[key]
            else:
                ids.add(token_id(key, self.env, f"{self.name}: exempt"))
        return ids

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        ids, counts = self._occurrences(rows, logits.shape[1])
        old = logits.gather(1, ids).double()
        penalty = self.columns.exact("penalty", rows)[:, None]
        return edit(logits, ids, old, self.penalised(old, counts, penalty))

    def _occurrences(self, rows: Rows, width: int) -> tuple[Tensor, Tensor]:
        """Return the ids in scope and their counts, both [A, W].

        Each occurrence of an id is an entry with its full count; exempt ids have count 0. Entries out of
        scope or outside the vocabulary repeat the row's first entry, so that all writes to one id are equal.
        """
        scope = self.columns.gather("scope", rows)  # prompt 0, output 1, both 2
        seen = rows.scoped(scope != 1, scope != 0, self.columns.gather("window", rows))
        ids = torch.where(seen.valid, seen.ids, width)
        ids = torch.nn.functional.pad(ids, (0, 1), value=width).sort(1).values
        counts = torch.searchsorted(ids, ids, right=True) - torch.searchsorted(ids, ids)
        counts = torch.where(self._is_exempt(ids, rows) | (ids == width), 0, counts)
        place = torch.where(ids < width, torch.arange(ids.shape[1], device=ids.device), 0)
        ids, counts = ids.gather(1, place), counts.gather(1, place)
        return torch.where(ids < width, ids, 0), counts

    def _is_exempt(self, ids: Tensor, rows: Rows) -> Tensor:
        exempt, filled = self.ids.gather(rows)
        at = torch.searchsorted(exempt, ids).clamp_(max=exempt.shape[1] - 1)
        return (exempt.gather(1, at) == ids) & filled


class Repetition(Penalty):
    """x = x / penalty if x > 0 else x * penalty for tokens seen before (Keskar et al. 2019, CTRL)."""

    name = "repetition"
    Params = RepetitionParams

    def penalised(self, old: Tensor, counts: Tensor, penalty: Tensor) -> Tensor:
        """Return the penalised logits; the count does not matter beyond 0."""
        return torch.where(counts > 0, torch.where(old > 0, old / penalty, old * penalty), old)


class Frequency(Penalty):
    """x = x - penalty * count (OpenAI)."""

    name = "frequency"
    Params = FrequencyParams

    def penalised(self, old: Tensor, counts: Tensor, penalty: Tensor) -> Tensor:
        """Return the penalised logits, linear in the count."""
        return old - penalty * counts


class Presence(Penalty):
    """x = x - penalty for tokens that occurred (OpenAI)."""

    name = "presence"
    Params = PresenceParams

    def penalised(self, old: Tensor, counts: Tensor, penalty: Tensor) -> Tensor:
        """Return the penalised logits; the count does not matter beyond 0."""
        return old - penalty * (counts > 0)

"""Penalties on tokens that a text already has."""

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
    """What the penalties share: find the tokens in scope, count them, edit their logits and no others.

    No table of slots x vocabulary: the ids in view are sorted, so a count is the length of a run. The
    listed ids are the exempt ones; a text among them that is not one token is a TokenError at admission.
    """

    phase = Phase.ADJUST
    keeps_faults = True

    @abstractmethod
    def penalised(self, old: Tensor, counts: Tensor, penalty: Tensor) -> Tensor:
        """New values of logits [A, N] whose tokens occurred this often [A, N]; penalty is [A, 1]."""

    def listed(self, params: PenaltyParams, request: Admission) -> Iterable[int]:
        """The exempt ids: those of the keywords, and what is named one by one."""
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
        """Logits [A, V]."""
        ids, counts = self._occurrences(rows, logits.shape[1])
        old = logits.gather(1, ids).double()
        penalty = self.columns.exact("penalty", rows)[:, None]
        return edit(logits, ids, old, self.penalised(old, counts, penalty))

    def _occurrences(self, rows: Rows, width: int) -> tuple[Tensor, Tensor]:
        """Ids in scope and how often each occurs there, both [A, W].

        An id stands once for each time it occurs, with its full count; an exempt one has count 0. Places
        that are not in scope, and ids that the model lacks, repeat the row's first entry, so that all that
        is written to one id is equal.
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
    """Divide positive and multiply negative logits of tokens seen before (Keskar et al. 2019, CTRL)."""

    name = "repetition"
    Params = RepetitionParams

    def penalised(self, old: Tensor, counts: Tensor, penalty: Tensor) -> Tensor:
        """Once per token, however often it occurred."""
        return torch.where(counts > 0, torch.where(old > 0, old / penalty, old * penalty), old)


class Frequency(Penalty):
    """Subtract the penalty once per occurrence (OpenAI)."""

    name = "frequency"
    Params = FrequencyParams

    def penalised(self, old: Tensor, counts: Tensor, penalty: Tensor) -> Tensor:
        """Linear in the count."""
        return old - penalty * counts


class Presence(Penalty):
    """Subtract the penalty once from each token that occurred (OpenAI)."""

    name = "presence"
    Params = PresenceParams

    def penalised(self, old: Tensor, counts: Tensor, penalty: Tensor) -> Tensor:
        """The same for one occurrence and for many."""
        return old - penalty * (counts > 0)

"""Beam searches in the engine: rank the continuations of the beams, and assign slots to the best ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gencli.config.options.drafts import NO_DRAFTER
from gencli.core.request import Request
from gencli.engine.admission import admission
from gencli.engine.beams.candidates import Ranked, Ranking, log_probabilities, rank
from gencli.engine.beams.search import Search
from gencli.engine.branches import Branches, Child, Inspect, note, rows_of
from gencli.engine.feeds import SampledSequences
from gencli.engine.reports import Taken
from gencli.engine.sequence import Sequence as Beam
from gencli.errors import GencliError, UsageError
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.upload import upload

__all__ = ["BeamSearches", "RankedSearch", "RankedSearches", "check_beams"]


def check_beams(request: Request, max_batch: int) -> None:
    """Raise UsageError if the request's beam search cannot run, or has options that need a draw."""
    if request.beams is None:
        return
    width = request.beams.width
    if width > max_batch:
        raise UsageError(
            f"`beams` is {width}, but `max_batch` lets only {max_batch} run side by side.",
            hint=f"Raise `max_batch` to {width}, or take fewer beams.",
        )
    if request.n > width:
        raise UsageError(f"`n` is {request.n}, but {width} beams find at most {width} texts.")
    if request.guidance.is_on:
        raise UsageError("Beams are not guided.", hint="Leave out the guidance or the beams.")
    if request.best_of is not None:
        raise UsageError("`best_of` chooses among drawn texts, but `beams` draws none.")
    if request.drafting.drafter not in ("", NO_DRAFTER):
        raise UsageError(f"`draft` is {request.drafting.drafter}, but beams take no drafts.")


@dataclass(frozen=True, slots=True, eq=False)
class RankedSearch:
    """A search in this step: the logit rows of its beams, and their continuations."""

    search: Search
    rows: tuple[int, ...]
    candidates: Ranked


@dataclass(frozen=True, slots=True, eq=False)
class RankedSearches:
    """The searches in this step, and the logit rows of their beams, on the device."""

    searches: tuple[Search, ...]
    rows: tuple[tuple[int, ...], ...]
    ranking: Ranking

    def read(self, values: Sequence[float]) -> list[RankedSearch]:
        """Return the searches, ranked on the host. `values`: the numbers of `ranking.packed`."""
        found = zip(self.searches, self.rows, self.ranking.read(values), strict=True)
        return [RankedSearch(*one) for one in found]


class BeamSearches:
    """Extends the beams of the searches that run."""

    def __init__(self, pipeline: Pipeline, branches: Branches) -> None:
        self._pipeline, self._branches = pipeline, branches

    def create(self, root: Beam) -> None:
        """Make a sequence the root of a search."""
        eos_ids, request = self._pipeline.env.eos_ids, root.request
        most = admission(request, root.context).max_tokens or 1
        Search(root, max_tokens=most, num_ends=len({*eos_ids, *request.stops.ids}))

    def rank(
        self, sampled: SampledSequences, first_rows: Sequence[int], logits: Tensor
    ) -> RankedSearches | None:
        """Rank the continuations of the sampled beams; None if no beam is sampled.

        `logits` [R, V]: processed.
        """
        searches, places = rows_of(Search, sampled, first_rows)
        if not searches:
            return None
        at = upload([row for beams in places for row in beams], logits.device, torch.int64)
        logprobs = log_probabilities(logits.index_select(0, at))
        sums, num_top = [search.sums for search in searches], [search.num_top for search in searches]
        return RankedSearches(searches, places, rank(logprobs, sums, num_top))

    def advance(
        self, ranked: RankedSearch, logits: Tensor, rows: Rows, inspect: Inspect | None = None
    ) -> tuple[list[tuple[Beam, Taken]], Exception | None]:
        """Extend a search by one token.

        Return its beams with their new tokens, () if the search has ended, and the error if it failed.
        `logits` [R, V] are unprocessed. `inspect` computes log-probabilities, if requested.
        """
        search, candidates = ranked.search, ranked.candidates
        if candidates.faulty or (candidates.is_empty and not search.finished.entries):
            (first, *_) = candidates.faulty or (0,)
            return [], self._pipeline.explain_failure(logits, rows, ranked.rows[first])
        former = [beam.slot for beam in search.members]
        made = list[Child]()
        try:
            children = search.advance(candidates, lambda beam, token: self._extend(beam, token, made))
        except GencliError as error:  # a stop pattern that takes too long
            return [], error
        if inspect is not None and search.request.logprobs is not None and made:
            note(made, dict(zip(former, ranked.rows, strict=True)), inspect)
        if search.is_over:
            return [], None
        self._branches.assign(search, former, children)
        return [(child.branch, child.taken) for child in children], None

    def _extend(self, parent: Beam, token: int, made: list[Child]) -> Child:
        """Return a copy of the beam extended by a token, and ended if the token ends it; add it to `made`."""
        child = self._branches.extend(parent, token)
        beam = child.branch
        if beam.cut:
            is_open = beam.request.finish_open and beam.document == "open"
            beam.end_cut(self._pipeline.completion(parent.slot, child.taken.ids) if is_open else ())
        made.append(child)
        return child

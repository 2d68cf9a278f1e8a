"""Beam search: the running beams of a request, their continuations, most likely first, the finished texts
and the stopping rule; and the branches of a group (copies of its sequences with one token more) with
the slots that they run in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar, cast

import torch
from torch import Tensor

from gencli.core.events import Error, Event, Finish, Token
from gencli.core.request import NO_DRAFTER, Beams, Request
from gencli.engine.best_of import best_reachable, chosen_events, interrupted, length_score
from gencli.engine.endings import Endings
from gencli.engine.scheduler import Scheduler
from gencli.engine.sequence import Group, SampledSequences, Taken
from gencli.engine.sequence import Sequence as Beam
from gencli.engine.slot_state import admission
from gencli.engine.step import Inspect, Step, StepHook
from gencli.errors import GencliError, UsageError
from gencli.text.text_stream import TextStream
from processors.graphs import upload
from processors.pipeline import Pipeline

G = TypeVar("G", bound=Group)


@dataclass(frozen=True, slots=True)
class ChildBranch:
    """A sequence extended by one token, and the slot of its parent."""

    parent: int
    branch: Beam
    taken: Taken


class Branches:
    """Extends the sequences of groups. `fork` copies a slot; `release` empties lanes and frees slots."""

    def __init__(
        self,
        scheduler: Scheduler,
        pipeline: Pipeline,
        *,
        fork: Callable[[int, int], None],
        release: Callable[[Collection[int], Collection[int]], None],
    ) -> None:
        self._scheduler, self._pipeline, self._fork, self._release = scheduler, pipeline, fork, release

    def extend(self, parent: Beam, token: int) -> ChildBranch:
        """Return a copy of the sequence extended by a token, and ended if the token ends it.

        Raises GencliError for a stop pattern that takes too long.
        """
        branch = parent.fork()
        status = self._pipeline.preview(parent.slot, [token])
        taken, error = branch.take([token], status, now=time.monotonic())
        if error is not None:
            raise error
        return ChildBranch(parent.slot, branch, taken)

    def assign(self, group: Group, former: Sequence[int], children: Sequence[ChildBranch]) -> None:
        """Run the children in place of the members in slots `former`: copy slots for them, empty the rest."""
        parents = [child.parent for child in children]
        left = set(former) - set(parents)
        self._release(left, left)
        # The first child of a parent keeps its slot, so a sequence with one child is not copied. Other
        # children get slots of sequences without children.
        free, used = iter([slot for slot in group.slots if slot not in parents]), set[int]()
        for child in children:
            slot = next(free) if child.parent in used else child.parent
            used.add(slot)
            if slot != child.parent:
                self._fork(child.parent, slot)
            child.branch.slot = slot  # to which the lane was copied
        self._scheduler.replace(group)

    def behind(self) -> list[Beam]:
        """Return the members of groups of which some still recompute their lanes: they choose together."""
        groups = {sequence.group for sequence in self._scheduler.running if sequence.group is not None}
        return [member for group in groups if group.is_behind for member in group.members]


def rows_of(
    kind: type[G], sampled: SampledSequences, first_rows: Sequence[int]
) -> tuple[tuple[G, ...], tuple[tuple[int, ...], ...]]:
    """Return the groups of this kind that are sampled in the step, and the logit rows of their members."""
    pairs = zip(sampled, first_rows, strict=True)
    rows = {sequence.slot: row for (sequence, _), row in pairs if isinstance(sequence.group, kind)}
    groups = dict.fromkeys(sequence.group for sequence, _ in sampled if isinstance(sequence.group, kind))
    return tuple(groups), tuple(tuple(rows[member.slot] for member in group.members) for group in groups)


def note(children: Sequence[ChildBranch], row_of: dict[int, int], inspect: Inspect) -> None:
    """Add to each child the log-probability of its last token. `row_of`: row of each slot."""
    entries = inspect(
        [row_of[child.parent] for child in children], [child.taken.ids[0] for child in children]
    )
    for child, entry in zip(children, entries, strict=True):
        child.branch.note([entry])


@dataclass(frozen=True, slots=True)
class BeamCandidate:
    """A beam and its next token; `logprob` is the log-probability of the whole text with it."""

    beam: int
    token: int
    logprob: float


def log_probabilities(logits: Tensor) -> Tensor:
    """Return the log-softmax of each row [B, V], float64; minus infinity in a row without allowed tokens.

    A row with NaN or +inf becomes NaN.
    """
    logprobs = logits.double().log_softmax(-1)
    is_empty = (logits == -torch.inf).all(-1, keepdim=True)
    return logprobs.masked_fill(is_empty, -torch.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """Iterable of the allowed continuations of one search, by falling log-probability of the whole text.

    `best` are the first ones as (logprob, flat index), on the host. Iterating further sorts `totals` [B * V].
    `faulty` are the beams whose logits have NaN or +inf.
    """

    faulty: tuple[int, ...]
    best: list[tuple[float, int]]
    totals: Tensor
    vocab_size: int

    @property
    def is_empty(self) -> bool:
        """Whether no beam has an allowed continuation."""
        return self.best[0][0] == -torch.inf

    def __iter__(self) -> Iterator[BeamCandidate]:
        yield from self._candidates(self.best)
        if self.best[-1][0] == -torch.inf:
            return  # nothing else is allowed
        seen = upload([index for _, index in self.best], self.totals.device)
        unseen = self.totals.index_fill(0, seen, -torch.inf).sort(descending=True, stable=True)
        yield from self._candidates(zip(unseen.values.tolist(), unseen.indices.tolist(), strict=True))

    def _candidates(self, pairs: Iterable[tuple[float, int]]) -> Iterator[BeamCandidate]:
        for logprob, index in pairs:
            if logprob == -torch.inf:
                return
            yield BeamCandidate(index // self.vocab_size, index % self.vocab_size, logprob)


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The best continuations of several searches, on the device; `packed` [N] float64 goes to the host."""

    totals: tuple[Tensor, ...]  # of each search: log-probabilities of the whole text [B * V]
    sizes: tuple[int, ...]  # number of beams of each search
    num_top: tuple[int, ...]
    vocab_size: int
    packed: Tensor

    def read(self, values: Sequence[float]) -> list[Ranked]:
        """Return the continuations of each search. `values`: the numbers of `packed`."""
        numbers = iter(values)
        faulty = [[beam for beam in range(size) if next(numbers)] for size in self.sizes]
        ranked = list[Ranked]()
        for beams, count, part in zip(faulty, self.num_top, self.totals, strict=True):
            logprobs, indices = ([*islice(numbers, count)] for _ in range(2))
            best = [*zip(logprobs, map(int, indices), strict=True)]
            ranked.append(Ranked(tuple(beams), best, part, self.vocab_size))
        return ranked


def rank(logprobs: Tensor, sums: Sequence[Sequence[float]], num_top: Sequence[int]) -> Ranking:
    """Rank the continuations of several searches.

    `logprobs` [B, V] float64: log-probabilities of the next token, for the beams of all searches in order.
    `sums`: log-probabilities of each search's beams so far. `num_top`: number of continuations of each search
    that are copied to the host.
    """
    _, vocab_size = logprobs.shape
    sizes = tuple(len(beams) for beams in sums)
    before = upload([value for beams in sums for value in beams], logprobs.device, torch.float64)
    totals = tuple(part.flatten() for part in torch.split(logprobs + before[:, None], [*sizes]))
    best = [part.topk(min(count, len(part))) for part, count in zip(totals, num_top, strict=True)]
    table = [logprobs.isnan().any(-1).double()]
    table += [column.double() for top in best for column in (top.values, top.indices)]
    counts = tuple(len(top.values) for top in best)
    return Ranking(totals, sizes, counts, vocab_size, torch.cat(table))  # float64 holds every index


Extend = Callable[[Beam, int], ChildBranch]  # extends a copy of the beam by a token; raises GencliError


class Search(Group):
    """Beam search, from a `root` that holds the prompt only. Its members are the running beams.

    `max_tokens`: maximum number of tokens of a text. `num_ends`: number of token ids that end a text.
    """

    def __init__(self, root: Beam, *, max_tokens: int, num_ends: int) -> None:
        self._beams = root.request.beams or Beams(1)
        super().__init__(root, self._beams.width)
        self.finished = list[tuple[float, Beam]]()  # the `width` best scores, best first
        self._max_tokens, self._is_interrupted = max_tokens, False
        # At least `width` of this many candidates do not end their text.
        self.num_top = self.width * (1 + num_ends)

    @property
    def sums(self) -> list[float]:
        return [beam.logprob for beam in self.members]

    def advance(self, candidates: Iterable[BeamCandidate], extend: Extend) -> list[ChildBranch]:
        """Select the beams of the next step from the candidates, which are sorted best first; return them.

        A text that ends is finished if it is among the `width` best candidates, and dropped otherwise.
        """
        children = list[ChildBranch]()
        # Every text ends with its last token, so no candidate could continue.
        wanted = 0 if len(self.members[0].output) + 1 >= self._max_tokens else self.width
        for rank, candidate in enumerate(candidates):
            if rank >= self.width and len(children) >= wanted:
                break
            parent = self.members[candidate.beam]
            child = extend(parent, candidate.token)
            child.branch.logprob = candidate.logprob
            if child.branch.finish is None and len(children) < self.width:
                children.append(child)
            elif child.branch.finish is not None and rank < self.width:
                self._finish(child.branch, len(parent.output) + 1)  # without tokens that complete a document
        self.members = [child.branch for child in children]
        return children

    def close(self, reason: str, matched: str | None = None) -> None:
        self._is_interrupted = reason == "interrupted"
        for beam in self.members:
            beam.close(reason, matched)
            self._finish(beam, len(beam.output))

    def drain(self, now: float, error: Exception | None = None) -> list[Event]:
        request = self.request
        if error is not None:
            return [Error(request.id, j, type(error).__name__, str(error), "") for j in range(request.n)]
        scored = [
            (
                score,
                beam.logprob,
                cast(Finish, beam.drain(now)[-1]),
                Token(request.id, 0, "", tuple(beam.output), beam.logprobs),
            )
            for score, beam in self.finished
        ]
        # Among equal scores the shorter text comes first.
        scored.sort(key=lambda entry: (len(entry[3].ids), entry[3].ids))
        events = chosen_events(request.id, request.n, scored)
        return interrupted(events) if self._is_interrupted else events

    def restart(self, stream: TextStream) -> None:
        self.members, self.slots = self.members[:1], ()
        self.members[0].restart(stream)
        self.finished = []

    @property
    def is_over(self) -> bool:
        """Whether no running beam can change the result."""
        if not self.members:
            return True
        if len(self.finished) < self.width:
            return False
        if self.width == 1 or self._beams.early_stopping:
            return True
        penalty = self._beams.length_penalty
        bounds = [
            best_reachable(beam.logprob, len(beam.output), self._max_tokens, penalty) for beam in self.members
        ]
        return max(bounds) <= self.finished[-1][0]

    def _finish(self, beam: Beam, length: int) -> None:
        self.finished.append((length_score(beam.logprob, length, self._beams.length_penalty), beam))
        self.finished.sort(key=lambda entry: -entry[0])  # stable: of equal scores the earlier text is first
        del self.finished[self.width :]


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


class BeamSearches(StepHook):
    """Extends the beams of the searches that run."""

    def __init__(self, pipeline: Pipeline, branches: Branches, endings: Endings) -> None:
        super().__init__()
        self._pipeline, self._branches, self._endings = pipeline, branches, endings
        self._ranked: list[tuple[Search, tuple[int, ...], Ranked]] = []  # of this step

    def create(self, root: Beam) -> None:
        eos_ids, request = self._pipeline.env.eos_ids, root.request
        max_tokens = admission(request, root.context).max_tokens or 1
        Search(root, max_tokens=max_tokens, num_ends=len({*eos_ids, *request.stops.ids}))

    def wants(self, sequence: Beam) -> bool:
        return sequence.request.beams is not None

    def behind(self) -> list[Beam]:
        return self._branches.behind()

    def before(self, step: Step) -> None:
        step.reads |= any(isinstance(sequence.group, Search) for sequence, _ in step.sampled)

    def on_tokens(self, step: Step) -> None:
        """Rank the continuations of the sampled beams, by the processed logits."""
        self._ranked, logits = [], step.processed
        searches, rows = rows_of(Search, step.sampled, step.first_rows)
        if not searches or logits is None:
            return
        at = upload([row for beams in rows for row in beams], logits.device, torch.int64)
        logprobs = log_probabilities(logits.index_select(0, at))
        sums, num_top = [search.sums for search in searches], [search.num_top for search in searches]
        ranking = rank(logprobs, sums, num_top)

        def read(values: Sequence[float]) -> None:
            self._ranked = [*zip(searches, rows, ranking.read(values), strict=True)]

        step.packed.append((ranking.packed, read))

    def after(self, step: Step) -> list[Event]:
        """Extend the searches by one token each."""
        events, searches = list[Event](), self._ranked
        self._ranked = []  # frees the log-probabilities
        for search, rows, candidates in searches:
            beams, error = self._advance(step, search, rows, candidates)
            step.kept += beams
            if not beams:
                events += search.drain(step.now, error)
                self._endings.remove(search)
        return events

    def _advance(
        self, step: Step, search: Search, rows: tuple[int, ...], candidates: Ranked
    ) -> tuple[list[tuple[Beam, Taken]], Exception | None]:
        """Return the beams of a search with their new tokens, [] if it has ended, and the error if it failed.

        `rows`: the logit rows of its beams.
        """
        if candidates.faulty or (candidates.is_empty and not search.finished):
            (first, *_) = candidates.faulty or (0,)
            return [], self._pipeline.explain_failure(step.logits, step.rows, rows[first])
        former, extended = [beam.slot for beam in search.members], list[ChildBranch]()

        def extend(parent: Beam, token: int) -> ChildBranch:
            extended.append(child := self._branches.extend(parent, token))
            if child.branch.cut:
                child.branch.end_cut(self._endings.completion(child.branch, child.taken.ids))
            return child

        try:
            children = search.advance(candidates, extend)
        except GencliError as error:  # a stop pattern that takes too long
            return [], error
        if step.inspect is not None and search.request.logprobs is not None and extended:
            note(extended, dict(zip(former, rows, strict=True)), step.inspect)
        if search.is_over:
            return [], None
        self._branches.assign(search, former, children)
        return [(child.branch, child.taken) for child in children], None

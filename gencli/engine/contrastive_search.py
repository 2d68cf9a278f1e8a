"""Contrastive search: the candidates of each step run in parallel, and the best one by its hidden states
is continued.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import torch
from torch import Tensor

from gencli.core.events import Event
from gencli.core.request import NO_DRAFTER, Contrastive, Request
from gencli.engine.beam_search import Branches, log_probabilities, note, rows_of
from gencli.engine.endings import Endings
from gencli.engine.logprobs import best_ids
from gencli.engine.sequence import Group, Taken
from gencli.engine.sequence import Sequence as Text
from gencli.engine.step import Step, StepHook
from gencli.errors import GencliError, UsageError
from gencli.models.model_runner import LAST, ModelSpec
from gencli.text.text_stream import TextStream
from processors.graphs import upload_ints
from processors.pipeline import Pipeline
from processors.sampler import contrastive_scores, directions

_FIRST_ROWS = 256


class Directions:
    """Normalised hidden states [L, H] float32 of a text's tokens. The buffer doubles as the text grows."""

    def __init__(self) -> None:
        self._buffer, self._length = torch.empty(0, 0), 0

    @property
    def rows(self) -> Tensor:
        """Directions [L, H] of all tokens so far, in order."""
        return self._buffer[: self._length]

    def add(self, rows: Tensor) -> None:
        """Append the directions [N, H] of the next tokens."""
        length = self._length + len(rows)
        if length > len(self._buffer):
            grown = rows.new_empty(max(length, 2 * len(self._buffer), _FIRST_ROWS), rows.shape[1])
            if self._length:
                grown[: self._length] = self.rows
            self._buffer = grown
        self._buffer[self._length : length] = rows
        self._length = length

    def clear(self) -> None:
        self._buffer, self._length = torch.empty(0, 0), 0


class ContrastiveSearch(Group):
    """Contrastive search, from a `root` that holds the prompt only.

    `text` has the chosen tokens. The members are the candidates: the text plus one token each, which the next
    step feeds. During prefill the text is the only member. A candidate that ends the text is fed too: its
    state decides whether it is chosen.
    """

    def __init__(self, root: Text) -> None:
        self.params = root.request.contrastive or Contrastive(0.0, 1)
        super().__init__(root, self.params.k)
        self.text = root
        self._before, self._fed = Directions(), dict[int, Tensor]()  # of the text; of candidates by slot
        self.probabilities = torch.empty(0, dtype=torch.float64)  # [K]: of the candidates

    def feed(self, slot: int, states: Tensor) -> None:
        """Store the last hidden states [N, H] of the tokens that were fed to the member in a slot."""
        rows = directions(states)
        if self.members[0] is self.text:
            self._before.add(rows)
        else:
            self._fed[slot] = rows

    def choose(self) -> tuple[Tensor, Tensor]:
        """Return index [1] and score [1] of the best candidate, once the states of all are stored.

        Without candidates the text itself is the best.
        """
        if not self._fed:
            device = self._before.rows.device
            return torch.zeros(1, dtype=torch.int64, device=device), torch.zeros(1, device=device)
        states = torch.cat([self._fed[member.slot] for member in self.members])
        self._fed.clear()
        scores = contrastive_scores(self.probabilities, states, self._before.rows, self.params.alpha)
        best = scores.argmax(dim=0, keepdim=True)
        self._before.add(states.index_select(0, best))
        return best, scores.index_select(0, best)

    def close(self, reason: str, matched: str | None = None) -> None:
        self.text.close(reason, matched)

    def drain(self, now: float, error: Exception | None = None) -> list[Event]:
        return self.text.drain(now, error)

    def restart(self, stream: TextStream) -> None:
        self.members, self.slots = self.members[:1], ()
        self.text = self.members[0]
        self.text.restart(stream)
        self._before.clear()
        self._fed.clear()


def check_contrastive(request: Request, spec: ModelSpec, max_batch: int) -> None:
    """Raise UsageError if a contrastive search cannot run, or has options that it does not support."""
    asked = request.contrastive
    if asked is None:
        return
    if not 0 <= asked.alpha <= 1 or asked.k < 1:
        raise UsageError(
            f"A contrastive search has alpha {asked.alpha:g} and k {asked.k}.",
            hint="`contrastive_alpha` is between 0 and 1, `contrastive_k` at least 1.",
        )
    if not spec.hidden:
        raise UsageError(
            f"{spec.name} gives no hidden states, which `contrastive_alpha` compares.",
            hint="It needs gencli's own decoder, or lanes that share a cache, and no long rope.",
        )
    if asked.k > max_batch:
        raise UsageError(
            f"`contrastive_k` is {asked.k}, but `max_batch` lets only {max_batch} run side by side.",
            hint=f"Raise `max_batch` to {asked.k}, or take fewer candidates.",
        )
    beside = {
        "`n` above 1": request.n > 1,
        "`beams`": request.beams is not None,
        "`best_of`": request.best_of is not None,
        "guidance": request.guidance.is_on,
        "`dola`": request.dola is not None,
        "`draft`": request.drafting.drafter not in ("", NO_DRAFTER),
        "`trace`": request.trace is not None,
    }
    if option := next((option for option, is_asked in beside.items() if is_asked), ""):
        raise UsageError(
            f"`contrastive_alpha` and {option} do not go together.", hint="Leave one of them out."
        )


@dataclass(frozen=True, slots=True, eq=False)
class ContrastiveChoice:
    """Choice of a step for a search: the index `best` of its candidate, and the next candidates.

    `rows`: logit rows of the candidates. `ids`: the allowed ones of the k most likely next ids after the best
    candidate, most likely first; `probabilities` [k] their probabilities, on the device. `is_faulty`: the
    score is NaN.
    """

    search: ContrastiveSearch
    rows: tuple[int, ...]
    best: int
    ids: tuple[int, ...]
    probabilities: Tensor
    is_faulty: bool


class ContrastiveSearches(StepHook):
    """Runs the contrastive searches."""

    def __init__(self, pipeline: Pipeline, branches: Branches, endings: Endings) -> None:
        super().__init__()
        self._pipeline, self._branches, self._endings = pipeline, branches, endings
        self._choices: list[ContrastiveChoice] = []  # of this step

    def wants(self, sequence: Text) -> bool:
        return sequence.request.contrastive is not None

    def behind(self) -> list[Text]:
        return self._branches.behind()

    def before(self, step: Step) -> None:
        step.lanes |= {s.slot for s in step.sequences if s.request.contrastive is not None}
        step.taps |= {LAST}
        step.reads |= any(isinstance(sequence.group, ContrastiveSearch) for sequence, _ in step.sampled)

    def on_logits(self, step: Step) -> None:
        """Store the last hidden states [S, H] of all tokens that the step fed to searches, in feed order."""
        for index, states in step.states():
            sequence = step.sequences[index]
            if isinstance(sequence.group, ContrastiveSearch):
                sequence.group.feed(sequence.slot, states[LAST].to(self._pipeline.env.device))

    def on_tokens(self, step: Step) -> None:
        """Choose the candidate of each search, and rank the tokens after it by the processed logits."""
        self._choices, logits = [], step.processed
        searches, rows_by_search = rows_of(ContrastiveSearch, step.sampled, step.first_rows)
        if not searches or logits is None:
            return
        packed, probabilities = list[Tensor](), list[Tensor]()
        for search, rows in zip(searches, rows_by_search, strict=True):
            best, score = search.choose()
            row = upload_ints(rows, logits.device).index_select(0, best)
            logprobs = log_probabilities(logits.index_select(0, row))
            ids = best_ids(logprobs, min(search.params.k, logits.shape[1]))
            chances = logprobs.gather(1, ids).exp().squeeze(0)
            packed += [part.double() for part in (best, score, ids.squeeze(0), chances)]
            probabilities.append(chances)

        def read(values: Sequence[float]) -> None:
            numbers = iter(values)
            for search, rows, chances in zip(searches, rows_by_search, probabilities, strict=True):
                best, score = next(numbers), next(numbers)
                ids, shares = ([next(numbers) for _ in range(len(chances))] for _ in range(2))
                allowed = tuple(int(token) for token, share in zip(ids, shares, strict=True) if share > 0)
                self._choices.append(
                    ContrastiveChoice(search, rows, int(best), allowed, chances, isnan(score))
                )

        step.packed.append((torch.cat(packed), read))

    def after(self, step: Step) -> list[Event]:
        """Extend the searches by their chosen tokens."""
        events, choices = list[Event](), self._choices
        self._choices = []  # frees the probabilities
        for choice in choices:
            candidates, new = self._advance(step, choice)
            step.kept += candidates
            events += new
            if not candidates:
                self._endings.remove(choice.search)
        return events

    def _advance(self, step: Step, choice: ContrastiveChoice) -> tuple[list[tuple[Text, Taken]], list[Event]]:
        """Return the next candidates of a search with their tokens, and the events of its text.

        There are no candidates if the search has ended.
        """
        search, row, now = choice.search, choice.rows[choice.best], time.monotonic()
        search.text = text = search.members[choice.best]
        former = [member.slot for member in search.members]
        if text.cut:
            text.end_cut(self._endings.completion(text))
        if choice.is_faulty or (text.finish is None and not choice.ids):
            return [], search.drain(now, self._pipeline.explain_failure(step.logits, step.rows, row))
        events = search.drain(now)  # before the text is copied, so that copies do not emit its events again
        if text.finish is not None:
            return [], events
        try:
            children = [self._branches.extend(text, token) for token in choice.ids]
        except GencliError as error:  # a stop pattern that takes too long
            return [], events + search.drain(now, error)
        if step.inspect is not None and search.request.logprobs is not None:
            note(children, {text.slot: row}, step.inspect)
        search.members = [child.branch for child in children]
        search.probabilities = choice.probabilities[: len(children)]
        self._branches.assign(search, former, children)
        # A candidate that ends the text commits nothing, because no token follows it.
        branches = [(child.branch, Taken(()) if child.branch.finish else child.taken) for child in children]
        return branches, events

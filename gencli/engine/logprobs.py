"""Log-probabilities of chosen tokens and of prompts, and explanations for requests with `trace`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import isfinite

import torch
from torch import Tensor

from gencli.core.events import Alternative, Event, PromptScores, TokenLogprobs
from gencli.core.request import Feed
from gencli.engine.endings import Endings
from gencli.engine.scheduler import Scheduler
from gencli.engine.sequence import PromptScoring
from gencli.engine.sequence import Sequence as Sample
from gencli.engine.slot_state import ProcessorState
from gencli.engine.step import Step, StepHook
from gencli.errors import GenerationError
from processors.explain_rows import KeptLogits, explain_rows
from processors.graphs import upload, upload_ints
from processors.kernels.operations import row_logsumexps
from processors.rows import Rows

_HEAD = 6  # columns of the chosen token: id, raw, processed, ban, rank, processed rank


class TokenLogprobsHook(StepHook):
    """Measures the tokens of samples with `logprobs`."""

    def __init__(self) -> None:
        super().__init__()
        self._watch: Watch | None = None  # of this step

    def wants(self, sequence: Sample) -> bool:
        return sequence.request.logprobs is not None

    def on_logits(self, step: Step) -> None:
        counts = [sequence.request.logprobs for sequence, _ in step.sampled]
        guided = step.logits.to(step.rows.slots.device)
        self._watch = watch = Watch.of(counts, step.own, guided, step.rows, step.known)
        if watch is not None:
            step.reads = True
            step.seen = watch.seen if watch.ids.shape[1] else None  # no ids: nothing asks what masks them

    def on_tokens(self, step: Step) -> None:
        watch, processed = self._watch, step.processed
        self._watch = None  # frees the logits that it holds when the step is over
        if watch is None or processed is None:
            return
        measured, owners = watch.measured(processed, step.tokens), watch.owners
        step.inspect = partial(watch.of_beams, processed)

        def read(lines: Sequence[Sequence[float]]) -> None:
            for owner, entry in zip(owners, measured.read(lines), strict=True):
                step.entries.setdefault(owner, []).append(entry)

        step.packed.append((measured.packed, read))

    def trim(self) -> None:
        self._watch = None

    def on_taken(self, step: Step) -> None:
        for index, entries in step.entries.items():
            if (result := step.taken[index]) is not None:
                step.sampled[index][0].note(entries[: len(result[0].ids)])


class PromptScoringHook(StepHook):
    """Scores the tokens of prompts, and ends requests that only score."""

    def __init__(self, scheduler: Scheduler, endings: Endings) -> None:
        super().__init__()
        self._scheduler, self._endings = scheduler, endings

    def wants(self, sequence: Sample) -> bool:
        return sequence.scoring is not None

    def on_logits(self, step: Step) -> None:
        if step.plan.num_scored:
            scorings = [sequence.scoring for sequence in step.sequences]
            step.own, measured, taken = split_scores(step.plan.feeds, scorings, step.own)
            step.logits = step.own

            def read(values: Sequence[Sequence[float]]) -> None:
                entries = iter(measured.read(values))
                for scoring, count in taken:
                    scoring.take([*islice(entries, count)])

            step.packed.append((measured.packed, read))

    def report(self) -> Iterator[Event]:
        """Yield the scores of prompts that are complete, and end requests that only score."""
        for sequence in [*self._scheduler.running]:
            if (scoring := sequence.scoring) is None or not scoring.is_complete:
                continue
            if not scoring.is_reported:
                unsound = (
                    position
                    for position, entry in enumerate(scoring.scores)
                    if entry and not isfinite(entry.chosen.logprob) and not entry.chosen.banned_by
                )
                if (position := next(unsound, None)) is not None:
                    error = GenerationError(
                        f"NaN or +inf among the logits for token {position + 1} of the prompt: the model's "
                        "number format is at fault."
                    )
                    yield from self._endings.fail(sequence.unit, error)
                    continue
                scoring.is_reported = True
                yield PromptScores(sequence.request.id, tuple(scoring.scores))
            if scoring.is_only:
                sequence.unit.close("length", "max_tokens")
                yield from sequence.unit.drain(time.monotonic())
                self._endings.remove(sequence.unit)


@dataclass(slots=True, eq=False)
class Watch:
    """The rows of a step that need log-probabilities, and the cause for each id that is masked.

    `indices`: those of the A rows in the step; `at` [A]: the same on the device. `owners`: index of each
    row's sequence; `counts`: its number K of alternatives. `raw` [A, V] float32: the model's own logits.
    `ids` [A, M]: the K most likely ids, then the row's draft or given token, if there is one. `by` [A, M]:
    index into `names` of the cause that masked the id, -1 while it is allowed.
    """

    indices: list[int]
    owners: list[int]
    counts: list[int]
    rows: Rows
    at: Tensor
    raw: Tensor
    ids: Tensor
    by: Tensor
    names: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        wanted: Sequence[int | None],
        plain: Tensor,
        guided: Tensor,
        rows: Rows,
        known_ids: Tensor | None = None,
    ) -> Watch | None:
        """Return a Watch of the rows that need log-probabilities; None if there are none.

        `wanted`: number of alternatives for each sequence, or None. plain, guided [R, V]: the model's
        logits, and those after guidance, on the device of the stages. known_ids [Q, K + 1]: see Step.known.
        """
        if wanted.count(None) == len(wanted):
            return None
        owner_of = [owner for owner, count in enumerate(rows.counts) for _ in range(count)]
        indices = [row for row, owner in enumerate(owner_of) if wanted[owner] is not None]
        owners = [owner_of[row] for row in indices]
        counts = [wanted[owner] or 0 for owner in owners]
        at = upload(indices, guided.device)
        raw = plain.to(guided.device).index_select(0, at).float()
        ids = best_ids(raw, max(counts))
        if rows.drafts.shape[1]:  # a lossy policy may accept a draft that the stages forbid
            ids = torch.cat([ids, rows.drafted()[at][:, None]], dim=1)
        if known_ids is not None:
            forced = known_ids[upload(owners, at.device), rows.offsets[at]]
            ids = torch.cat([ids, forced.clamp(min=0)[:, None]], dim=1)
        watch = cls(indices, owners, counts, rows, at, raw, ids, torch.full_like(ids, -1))
        watch.seen("model", plain.to(guided.device))
        if plain is not guided:
            watch.seen("guidance", guided)
        return watch

    def seen(self, name: str, logits: Tensor) -> None:
        """Record the ids that are masked in these logits [R, V] but were not before; `name` is the cause."""
        is_new = (logits[self.at[:, None], self.ids] == -torch.inf) & (self.by < 0)
        self.by = torch.where(is_new, len(self.names), self.by)
        self.names.append(name)

    def measured(self, processed: Tensor, tokens: Tensor) -> PackedLogprobs:
        """Return the log-probabilities of the tokens [Q, K + 1] of the step; processed [R, V]."""
        chosen = tokens[upload(self.owners, tokens.device), self.rows.offsets[self.at]].clamp(min=0)
        return self._measured(self.at, processed, chosen, [*range(len(self.indices))])

    def of_beams(self, processed: Tensor, rows: Sequence[int], tokens: Sequence[int]) -> list[TokenLogprobs]:
        """Return log-probabilities of tokens [N] chosen at rows [N] of the step, in a separate transfer."""
        index = [self.indices.index(row) for row in rows]
        chosen = upload(tokens, processed.device, torch.int64)
        measured = self._measured(upload(rows, processed.device, torch.int64), processed, chosen, index)
        return measured.read(measured.packed.tolist())

    def _measured(self, at: Tensor, processed: Tensor, chosen: Tensor, index: list[int]) -> PackedLogprobs:
        """Measure the watched rows with indices `index`, which are the rows `at` [N] of processed [R, V]."""
        width = max(self.counts)
        watched = upload(index, chosen.device, torch.int64)
        raw, ids, by = self.raw[watched], self.ids[watched], self.by[watched]
        is_chosen = ids == chosen[:, None]
        ban = torch.where(is_chosen, by, -1).amax(dim=1) if ids.shape[1] else torch.full_like(chosen, -1)
        packed = measure(raw, processed.index_select(0, at), chosen, ids[:, :width], (ban, by[:, :width]))
        return PackedLogprobs(packed, [self.counts[row] for row in index], tuple(self.names))


@dataclass(frozen=True, slots=True, eq=False)
class PackedLogprobs:
    """Log-probabilities of N tokens on the device, `packed` [N, C] float64, with the data to decode them.

    `counts`: number of alternatives of each token. `names`: causes that mask ids.
    """

    packed: Tensor
    counts: list[int]
    names: tuple[str, ...]

    def read(self, values: Sequence[Sequence[float]]) -> list[TokenLogprobs]:
        """Return the entries of the tokens. `values`: the numbers of `packed`."""
        width = (self.packed.shape[1] - _HEAD) // 7
        return [self._entry(row, count, width) for row, count in zip(values, self.counts, strict=True)]

    def _entry(self, row: Sequence[float], count: int, width: int) -> TokenLogprobs:
        after = _HEAD + 4 * width
        best = [row[start : start + 3] for start in range(after, after + 3 * count, 3)]
        return TokenLogprobs(
            chosen=self._alternative(row[:4]),
            rank=int(row[4]),
            processed_rank=int(row[5]),
            top=tuple(self._alternative(row[i : i + 4]) for i in range(_HEAD, _HEAD + 4 * count, 4)),
            processed_top=tuple(
                Alternative(int(token), raw, done) for token, raw, done in best if done > -torch.inf
            ),
        )

    def _alternative(self, cells: Sequence[float]) -> Alternative:
        token, raw, done, ban = cells
        return Alternative(int(token), raw, done, self.names[int(ban)] if ban >= 0 else "")


def best_ids(logits: Tensor, count: int) -> Tensor:
    """Return the ids [A, count] of the largest logits [A, V], best first, ties by lowest id."""
    if not count:
        return torch.empty(len(logits), 0, dtype=torch.int64, device=logits.device)
    least = logits.topk(count, dim=1).values[:, -1:]
    is_above, is_equal = logits > least, logits == least
    missing = count - is_above.sum(dim=1, keepdim=True)
    is_best = is_above | (is_equal & (is_equal.cumsum(dim=1) <= missing))
    ids = is_best.byte().topk(count, dim=1).indices.sort(dim=1).values
    order = logits.gather(1, ids).sort(dim=1, descending=True, stable=True).indices
    return ids.gather(1, order)


def measure(
    raw: Tensor, processed: Tensor, chosen: Tensor, top: Tensor, bans: tuple[Tensor, Tensor]
) -> Tensor:
    """Return the packed numbers [A, C] float64 of `PackedLogprobs`.

    raw, processed [A, V] float32 logits; processed may be raw itself. chosen [A]: the tokens. top [A, K]: the
    most likely ids of raw. bans [A] and [A, K]: index of the cause that masks chosen and top ids, -1 if
    allowed.
    """
    count, ids = top.shape[1], torch.cat([chosen[:, None], top], dim=1)
    is_same = processed is raw
    low, rank = _logprobs(raw, ids), _rank(raw, chosen)
    done, done_rank = (low, rank) if is_same else (_logprobs(processed, ids), _rank(processed, chosen))
    after = top if is_same else best_ids(processed, count)
    ends = (low[:, 1:], done[:, 1:]) if is_same else (_logprobs(raw, after), _logprobs(processed, after))
    head = [chosen, low[:, 0], done[:, 0], bans[0], rank, done_rank]
    tables = [torch.stack([column.double() for column in head], dim=1)]
    for columns in ((top, low[:, 1:], done[:, 1:], bans[1]), (after, *ends)):  # each [A, K], grouped by k
        tables.append(torch.stack([column.double() for column in columns], dim=2).flatten(1))
    return torch.cat(tables, dim=1)


def _logprobs(logits: Tensor, ids: Tensor) -> Tensor:
    """Return log_softmax(logits) [A, V] at the ids [A, M]; -inf for masked ids."""
    at_ids = logits.gather(1, ids)
    return torch.where(at_ids == -torch.inf, at_ids, at_ids - row_logsumexps(logits))


def _rank(logits: Tensor, chosen: Tensor) -> Tensor:
    """Return the rank [A] of the chosen ids [A]: 1 for the largest logit, ties by lowest id."""
    value = logits.gather(1, chosen[:, None])
    ids = torch.arange(logits.shape[1], device=logits.device)
    is_before = (logits > value) | ((logits == value) & (ids < chosen[:, None]))
    return 1 + is_before.sum(dim=1)


def slice_rows(vocab_size: int) -> int:
    """Return the limit of prompt positions scored in a step: 16 to 512, with 64 MiB of float32 logits."""
    return min(512, max(16, 2**24 // vocab_size))


def split_scores(
    feeds: tuple[Feed, ...], scorings: list[PromptScoring | None], logits: Tensor
) -> tuple[Tensor, PackedLogprobs, list[tuple[PromptScoring, int]]]:
    """Measure the scored rows of logits [R, V].

    Return the other rows, the measurements, and how many of them belong to each scoring.
    """
    scored, kept, targets, counts = list[int](), list[int](), list[int](), list[int]()
    row, taken = 0, list[tuple[PromptScoring, int]]()
    for feed, scoring in zip(feeds, scorings, strict=True):
        end = row + feed.num_scored
        if scoring is not None and feed.num_scored:
            scored += range(row, end)
            targets += scoring.request.prompt_ids[scoring.next : scoring.next + feed.num_scored]
            counts += [scoring.request.prompt_logprobs or 0] * feed.num_scored
            taken.append((scoring, feed.num_scored))
        kept += range(end, row + feed.num_logits)
        row += feed.num_logits
    raw = (logits if not kept else logits.index_select(0, upload(scored, logits.device))).float()
    others = logits[:0] if not kept else logits.index_select(0, upload(kept, logits.device))
    top, chosen = best_ids(raw, max(counts)), upload(targets, raw.device, torch.int64)
    is_masked = (raw == -torch.inf).gather(1, torch.cat([chosen[:, None], top], dim=1))
    bans = torch.where(is_masked, 0, -1)
    measured = PackedLogprobs(measure(raw, raw, chosen, top, (bans[:, 0], bans[:, 1:])), counts, ("model",))
    return others, measured, taken


class Explanations(StepHook):
    """Explains the tokens of a step, before they are committed."""

    def __init__(self, state: ProcessorState) -> None:
        super().__init__()
        self._state = state

    def wants(self, sequence: Sample) -> bool:
        return sequence.request.trace is not None

    def on_taken(self, step: Step) -> None:
        for index, ((sequence, _), result) in enumerate(zip(step.sampled, step.taken, strict=True)):
            request, tokens = sequence.request, result[0].ids if result is not None else ()
            if request.trace is None or not tokens:
                continue
            # Token j was chosen in the sequence's row j, which saw the j drafts before it.
            indices = range(first := step.first_rows[index], first + len(tokens))
            logits = step.logits.index_select(0, upload_ints(indices, step.logits.device))
            rows = step.rows.select(indices)
            views = explain_rows(
                self._state.pipeline,
                self._state.sampler,
                logits,
                rows,
                upload_ints(tokens, step.logits.device),
                [request.draw] * len(tokens),
                count=request.trace,
            )
            if keep := request.keep_logits:
                seeds = [seed % (1 << 64) for seed in rows.seeds.tolist()]
                kept = [KeptLogits.of(row, keep, seed) for row, seed in zip(logits, seeds, strict=True)]
                views = [replace(view, kept=row) for view, row in zip(views, kept, strict=True)]
            sequence.explain(views)

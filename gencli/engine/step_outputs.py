"""From the result of a step, copied to the host in one transfer, to texts, events, explanations and KV
lane updates; known tokens (a given output or the prefix of one); and the end of requests.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from gencli.core.events import Event, TokenLogprobs
from gencli.core.request import Request
from gencli.engine.ahead import Speculation, settle
from gencli.engine.beam_search import BeamSearches, Inspect, RankedSearch, RankedSearches
from gencli.engine.contrastive_search import Choices, ContrastiveChoice, ContrastiveSearches
from gencli.engine.logprobs import Measured, Scored
from gencli.engine.reports import Room, Taken
from gencli.engine.scheduler import Scheduler
from gencli.engine.sequence import Group, SampledSequences, Sequence, heads
from gencli.engine.slot_state import ProcessorState
from gencli.errors import GenerationError, UsageError
from gencli.models.model_runner import ModelRunner, ModelSpec
from processors.base import Document
from processors.explain_rows import KeptLogits, explain_rows
from processors.graphs import start_download, upload, upload_ints
from processors.pipeline import Pipeline
from processors.row_view import RowView
from processors.rows import Rows
from processors.verification import matched

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
    choices: list[ContrastiveChoice] = field(default_factory=list)
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
        entries = dict[int, list[TokenLogprobs]]()
        if measured:
            for owner, entry in zip(measured[1], measured[0].read(next(parts)), strict=True):
                entries.setdefault(owner, []).append(entry)
        if scored:
            scored.take(next(parts))
        lines = [(int(count), numbers) for count, *numbers in values]
        ids = [[int(token) for token in numbers[:count]] for count, numbers in lines]
        logprobs = [numbers[width:][:count] for count, numbers in lines]
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
    tensors = (table, *packed)
    flat = _read(torch.cat([tensor.double().flatten() for tensor in tensors]), meanwhile)
    parts, end = list[list[Any]](), 0
    for tensor in tensors:
        start, end = end, end + tensor.numel()
        width = tensor.shape[1] if tensor.dim() > 1 else 0
        rows = [flat[at : at + width] for at in range(start, end, width)] if width else flat[start:end]
        parts.append(rows)
    return parts


def _read(table: Tensor, meanwhile: Callable[[], None] | None) -> list[Any]:
    """Return the values of a tensor. On a GPU the host does not wait for work launched by `meanwhile`."""
    if meanwhile is None:
        values: list[Any] = table.tolist()
        return values
    read = start_download(table)
    meanwhile()
    return read()


def own_logprobs(logits: Tensor, rows: Rows, tokens: Tensor, wanted: Items[bool]) -> Tensor:
    """Return log-probabilities [Q, K + 1] float64 of tokens [Q, K + 1]; 0 for requests not `wanted`.

    `logits` [R, V]: the model's own logits. Token j of a request belongs to the request's row j.
    """
    owners = [owner for owner, count in enumerate(rows.counts) for _ in range(count)]
    measured = [row for row, owner in enumerate(owners) if wanted[owner]]
    at, owner = upload([measured, [owners[row] for row in measured]], tokens.device)
    offsets = rows.offsets[at]
    table = logits.to(tokens.device)[at].double().log_softmax(-1)
    logprobs = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
    logprobs[owner, offsets] = table.gather(1, tokens[owner, offsets, None].clamp(min=0)).squeeze(1)
    return logprobs


class Outputs:
    """Appends the tokens of a step to their sequences, commits them, and ends the sequences that are done."""

    def __init__(
        self,
        runner: ModelRunner,
        scheduler: Scheduler,
        state: ProcessorState,
        speculation: Speculation,
        beams: BeamSearches,
        contrastive: ContrastiveSearches,
        endings: Endings,
        room: Room,
    ) -> None:
        self._runner, self._scheduler, self._state = runner, scheduler, state
        self._speculation, self._endings = speculation, endings
        self._beams, self._contrastive, self._room = beams, contrastive, room
        self._pipeline, self._rewinds = state.pipeline, bool(runner.spec.rope_switches)

    def take(self, result: StepResult) -> list[Event]:
        """Process the tokens of a step and return its events."""
        events, kept = list[Event](), list[tuple[Sequence, Taken]]()
        now = time.monotonic()
        preview = self._pipeline.preview if self._pipeline.previews else None
        withholding = self._pipeline.withholding
        for index, (sequence, drafts) in enumerate(result.sampled):
            if sequence.group is not None:
                continue
            if sequence.request.given is not None:
                taken, error = take_given(result, index, self._pipeline, now)
            else:
                tokens = result.tokens[index]
                is_prefix = len(sequence.output) < len(sequence.request.prefix)
                if not is_prefix and (drafts or sequence.drafted is not None):
                    count = 0 if sequence.held else len(drafts)
                    self._speculation.observe(sequence, proposed=count, accepted=min(count, len(tokens) - 1))
                valid = tokens if min(tokens) >= 0 else [token for token in tokens if token >= 0]
                followed = preview(sequence.slot, valid) if preview else ()
                certain: Items[int] = valid
                is_whole = True
                if withholding and not is_prefix and (stage := withholding.get(sequence.slot)):
                    certain, is_whole = settle(sequence, valid, followed, stage, now)
                taken, error = sequence.take(certain, followed, now=now, logprobs=result.logprobs[index])
                if is_prefix:
                    error = prefix_error(sequence, error)
                if index in result.entries:
                    sequence.note(result.entries[index][: len(taken.ids)])
                if sequence.cut:
                    sequence.end_cut(self._endings.completion(sequence, taken.ids))
                if error is None and sequence.finish is None and valid is not tokens and is_whole:
                    row = result.first_rows[index] + len(valid)
                    error = self._pipeline.explain_failure(result.logits, result.rows, row)
            if sequence.request.trace is not None and taken.ids:
                sequence.explain(explained(result, index, taken.ids, self._state))
            events += sequence.drain(now, error)
            if sequence.finish is not None or error is not None:
                self._endings.remove(sequence)
            else:
                kept.append((sequence, taken))
        if result.searches or result.choices:
            events += self._advance(result, kept, now)
        with self._room:
            self._commit(kept)
        self._speculation.conclude()
        return events

    def _advance(self, result: StepResult, kept: list[tuple[Sequence, Taken]], now: float) -> list[Event]:
        """Extend groups of sequences: beams and candidates. Appends those that continue to `kept`."""
        events = list[Event]()
        for ranked in result.searches:
            beams, error = self._beams.advance(ranked, result.logits, result.rows, result.inspect)
            kept += beams
            if not beams:
                events += ranked.search.drain(now, error)
                self._endings.remove(ranked.search)
        for choice in result.choices:
            candidates, new = self._contrastive.advance(choice, result.logits, result.rows, result.inspect)
            kept += candidates
            events += new
            if not candidates:
                self._endings.remove(choice.search)
        return events

    def scores(self) -> Iterator[Event]:
        """Yield the scores of prompts that are complete, and end requests that only score."""
        for sequence in [sequence for sequence in self._scheduler.running if sequence.scoring]:
            assert sequence.scoring is not None
            is_due = sequence.scoring.is_complete and not sequence.scoring.is_reported
            if is_due and (position := sequence.scoring.first_unsound) is not None:
                error = GenerationError(
                    f"NaN or +inf among the logits for token {position + 1} of the prompt: the model's "
                    "number format is at fault."
                )
                yield from self._endings.fail(sequence.unit, error)
                continue
            yield from sequence.scoring.report()
            if sequence.scoring.is_complete and sequence.scoring.is_only:
                sequence.unit.close("length", "max_tokens")
                yield from sequence.unit.drain(time.monotonic())
                self._endings.remove(sequence.unit)

    def _commit(self, kept: list[tuple[Sequence, Taken]]) -> None:
        """Commit the tokens of continuing sequences, and truncate KV lanes after rejected drafts."""
        self._state.commit([(sequence, taken) for sequence, taken in kept if taken.ids])
        for sequence, _ in kept:
            if self._rewinds and self._scheduler.rewind(sequence):
                self._runner.release(sequence.slot)
            elif sequence.lag < 1 and sequence.rollback():
                self._runner.truncate(sequence.slot, sequence.num_computed_tokens)


_ENDED: tuple[Document, ...] = ("broken", "over")  # states of a document after which no token may follow


def check_given(request: Request, context: int) -> None:
    """Raise UsageError if the given output cannot be scored. `context`: most tokens in total."""
    if not request.given:
        raise UsageError("A given output has no tokens.")
    if request.n > 1 or request.beams or request.best_of or request.session or request.finish_open:
        raise UsageError("A given output is one sample: without `n`, `beams`, `best_of`, `finish_open`.")
    if request.contrastive:
        raise UsageError("A given output is not chosen: leave `contrastive_alpha` out.")
    size = len(request.prompt_ids) + len(request.given)
    if size > context:
        raise UsageError(f"Prompt and given output have {size} tokens, but {context} fit the context.")
    if len(request.given) > request.limits.max_tokens:
        raise UsageError(
            f"There are {len(request.given)} tokens to score, but `max_tokens` is "
            f"{request.limits.max_tokens}: no text can have them."
        )


def check_prefix(request: Request, context: int) -> None:
    """Raise UsageError if the output cannot begin with the prefix. `context`: most tokens in total."""
    size, limit = len(request.prefix), min(request.limits.max_tokens, context - len(request.prompt_ids))
    if request.given is not None or request.beams is not None or request.contrastive is not None:
        raise UsageError(
            "A prefix of the output goes with no `beams`, no `contrastive_alpha`, and with no given output."
        )
    if size > limit:
        raise UsageError(
            f"The prefix of the output has {size} tokens, but {limit} fit `max_tokens` and context."
        )


def prefix_error(sequence: Sequence, error: Exception | None) -> GenerationError | None:
    """Return why the output cannot begin with its prefix, or None. `error`: error of the last token."""
    count, size = len(sequence.output), len(sequence.request.prefix)
    if error is not None:
        return GenerationError(
            f"Token {count} of the {size} that the output begins with is impossible: {error}"
        )
    if sequence.finish is not None and sequence.known:
        reason = sequence.finish.reason
        return GenerationError(
            f"The output ends behind {count} of the {size} tokens that it begins with: {reason}."
        )
    return None


def given_drafts(
    sequences: Items[Sequence], pipeline: Pipeline, spec: ModelSpec, rows: int
) -> dict[int, tuple[int, ...]]:
    """Return the known ids to feed as drafts, by slot; the sequences share `rows` logit rows.

    The known id after the drafts is the token that the step chooses. A chain with a sequential stage gets no
    drafts: one id a step.
    """
    drafts = dict[int, tuple[int, ...]]()
    share = rows // max(1, len(sequences))
    for sequence in sequences:
        ids = sequence.known
        count = min(len(ids), sequence.room, spec.limit(len(sequence)) - len(sequence), share) - 1
        if count > 0 and not pipeline.sequential(sequence.slot):
            drafts[sequence.slot] = ids[:count]
    return drafts


def given_tokens(sampled: SampledSequences, device: torch.device) -> Tensor | None:
    """Return the known tokens of the step [Q, K + 1] int64: drafts and the token after them, padded with -1.

    None if no sequence of the step has any.
    """
    runs = [sequence.known[: len(drafts) + 1] for sequence, drafts in sampled]
    if not any(runs):
        return None
    width = 1 + max(len(drafts) for _, drafts in sampled)
    return upload([[*run, *[-1] * (width - len(run))] for run in runs], device, torch.int64)


def accept_given(
    given: Tensor, draw: Callable[[], tuple[Tensor, Tensor]], sampled: SampledSequences
) -> tuple[Tensor, Tensor]:
    """Return tokens [Q, K + 1] and counts [Q]: from `given` [Q, K + 1] where known, else from `draw()`."""
    is_given = given >= 0
    if all(sequence.known for sequence, _ in sampled):
        return given, is_given.sum(dim=1)
    tokens, counts = draw()
    return torch.where(is_given, given, tokens), torch.where(is_given[:, 0], is_given.sum(dim=1), counts)


def take_given(
    result: StepResult, index: int, pipeline: Pipeline, now: float
) -> tuple[Taken, Exception | None]:
    """Append the given tokens of a step to their sequence; return the appended ones and the error, if any.

    It is an error if tokens follow the end of a document or a token that the grammar forbids.
    """
    sequence, tokens, entries = result.sampled[index][0], result.tokens[index], result.entries.get(index, ())
    before = sequence.document
    followed = pipeline.preview(sequence.slot, tokens) if before not in _ENDED else ()
    taken = sequence.take_given(tokens, followed, now=now)
    for offset, entry in enumerate(entries):
        if math.isnan(entry.chosen.processed):
            row = result.first_rows[index] + offset
            return taken, pipeline.explain_failure(result.logits, result.rows, row)
        sequence.note([_impossible(entry) if before in _ENDED else entry])
        before = followed[offset].document if offset < len(followed) else before
    return taken, None


def _impossible(entry: TokenLogprobs) -> TokenLogprobs:
    ids = (entry.chosen, *entry.top)
    chosen, *top = (replace(i, processed=-math.inf, banned_by=i.banned_by or "grammar") for i in ids)
    return TokenLogprobs(chosen, entry.rank, chosen.id + 1, tuple(top))


class Endings:
    """Ends sequences and groups. `release(lanes, slots)` empties KV lanes and drops other state of slots."""

    def __init__(
        self,
        scheduler: Scheduler,
        pipeline: Pipeline,
        release: Callable[[Iterable[int], Iterable[int]], None],
    ) -> None:
        self._scheduler, self._pipeline, self._release = scheduler, pipeline, release
        self._cancelled: dict[str, None] = {}  # ids of requests, until the next step; accesses are atomic

    def cancel(self, request_id: str) -> None:
        """Mark a request as cancelled; `cancelled` ends it. Safe from another thread."""
        self._cancelled[request_id] = None

    def forget(self, request_id: str) -> None:
        """Drop an earlier cancellation of an id that a new request reuses."""
        self._cancelled.pop(request_id, None)

    def cancelled(self) -> Iterator[Event]:
        """End all samples of cancelled requests (reason `interrupted`)."""
        while self._cancelled:
            request_id, _ = self._cancelled.popitem()
            sequences = [s for s in self._scheduler.everything() if s.request.id == request_id]
            yield from self._end(sequences, "interrupted")
            yield from self._scheduler.pending.end("interrupted", request_id)

    def everything(self) -> Iterator[Event]:
        """End all requests (reason `interrupted`)."""
        yield from self._end(self._scheduler.everything(), "interrupted")
        yield from self._scheduler.pending.end("interrupted")

    def waiting(self) -> Iterator[Event]:
        """End the requests that have not begun; running ones continue."""
        yield from self._end([*self._scheduler.waiting], "interrupted")
        yield from self._scheduler.pending.end("interrupted")

    def late(self) -> list[Event]:
        """End the requests whose `max_time` has passed."""
        now = time.monotonic()
        timed = [s for s in self._scheduler.everything() if s.request.limits.max_time is not None]
        late = [s for s in timed if s.request.limits.is_over(now - s.submitted)]
        ended = self._end(late, "length", "max_time") if late else ()
        return [*self._scheduler.pending.end_late(), *ended]

    def completion(self, sequence: Sequence, tokens: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return tokens that complete the open document after `tokens`; () without `finish_open`."""
        is_open = sequence.request.finish_open and sequence.document == "open"
        return self._pipeline.completion(sequence.slot, tokens) if is_open else ()

    def fail(self, unit: Sequence | Group, error: Exception) -> list[Event]:
        """End a sequence or group with an error."""
        events = unit.drain(time.monotonic(), error)
        self.remove(unit)
        return events

    def remove(self, unit: Sequence | Group) -> None:
        """Free the slots of a unit that has ended, or remove it from the queue."""
        slots = unit.slots
        self._release(self._scheduler.remove(unit), slots)

    @torch.inference_mode()
    def _end(self, sequences: Iterable[Sequence], reason: str, matched: str | None = None) -> list[Event]:
        events = list[Event]()
        for sequence in heads(sequences):
            unit = sequence.unit
            if reason == "length" and unit is sequence and (completion := self.completion(sequence)):
                sequence.end_cut(completion, matched)
            else:
                unit.close(reason, matched)
            events += unit.drain(time.monotonic())
            self.remove(unit)
        return events


def explained(
    result: StepResult, index: int, tokens: tuple[int, ...], state: ProcessorState
) -> list[RowView]:
    """Explain the tokens of one sequence, before they are committed.

    Token j was chosen in the sequence's row j, which saw the j drafts before it.
    """
    sequence, _ = result.sampled[index]
    request, first = sequence.request, result.first_rows[index]
    indices = range(first, first + len(tokens))
    logits = result.logits.index_select(0, upload_ints(indices, result.logits.device))
    rows = result.rows.select(indices)
    views = explain_rows(
        state.pipeline,
        state.sampler,
        logits,
        rows,
        upload_ints(tokens, result.logits.device),
        [request.draw] * len(tokens),
        count=request.trace or 0,
    )
    if not (keep := request.keep_logits):
        return views
    seeds = [seed % (1 << 64) for seed in rows.seeds.tolist()]
    kept = [KeptLogits.of(row, keep, seed) for row, seed in zip(logits, seeds, strict=True)]
    return [replace(view, kept=logits) for view, logits in zip(views, kept, strict=True)]

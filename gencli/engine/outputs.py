"""Turns the tokens chosen by a step into texts, events and KV lane updates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from collections.abc import Sequence as Tokens

from gencli.core.events import Event
from gencli.engine.beams.searches import BeamSearches
from gencli.engine.contrastive.searches import ContrastiveSearches
from gencli.engine.endings import Endings
from gencli.engine.explaining import explained
from gencli.engine.given import prefix_error, take_given
from gencli.engine.reports import Taken
from gencli.engine.rewind import settle
from gencli.engine.room import Room
from gencli.engine.scheduler import Scheduler
from gencli.engine.sequence import Sequence
from gencli.engine.slot_state import ProcessorState
from gencli.engine.speculation import Speculation
from gencli.engine.step_result import StepResult
from gencli.errors import GenerationError
from gencli.models.model_runner import ModelRunner

__all__ = ["Outputs"]


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
                is_known = len(sequence.output) < len(sequence.request.prefix)
                if not is_known and (drafts or sequence.drafted is not None):
                    count = 0 if sequence.held else len(drafts)
                    self._speculation.observe(sequence, proposed=count, accepted=min(count, len(tokens) - 1))
                valid = tokens if min(tokens) >= 0 else [token for token in tokens if token >= 0]
                followed = preview(sequence.slot, valid) if preview else ()
                certain: Tokens[int] = valid
                is_whole = True
                if withholding and not is_known and (stage := withholding.get(sequence.slot)):
                    certain, is_whole = settle(sequence, valid, followed, stage, now)
                taken, error = sequence.take(certain, followed, now=now, logprobs=result.logprobs[index])
                if is_known:
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
            candidates, told = self._contrastive.advance(choice, result.logits, result.rows, result.inspect)
            kept += candidates
            events += told
            if not candidates:
                self._endings.remove(choice.search)
        return events

    def scores(self) -> Iterator[Event]:
        """Yield the scores of prompts that are complete, and end requests that only score."""
        for sequence in [one for one in self._scheduler.running if one.scoring]:
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

"""Run one step: plan it, run the model, and choose the tokens."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor

from gencli.core.request import Request
from gencli.engine.ahead import RunAhead
from gencli.engine.beams.searches import BeamSearches
from gencli.engine.companions import Companions
from gencli.engine.contrastive.searches import ContrastiveSearches
from gencli.engine.feeds import SampledSequences
from gencli.engine.given import accept_given, given_drafts, given_tokens
from gencli.engine.logprobs import Watch
from gencli.engine.prompt_scores import split_scores
from gencli.engine.rewind import can_rewind, held_drafts
from gencli.engine.scheduler import Scheduler
from gencli.engine.sequence import Sequence
from gencli.engine.slot_state import ProcessorState
from gencli.engine.speculation import Speculation
from gencli.engine.step_result import StepResult, Verified, first_rows
from gencli.models.model_runner import ModelRunner
from processors.rows import Rows
from processors.verify import verify

__all__ = ["StepRunner"]


class StepRunner:
    """Runs the model on the feeds of a step, and chooses the tokens of its sequences.

    `ahead` is the runner, if it runs ahead. `has_asked`: whether any request so far asked for
    log-probabilities. What no request so far has asked for costs a step nothing.
    """

    def __init__(
        self,
        runner: ModelRunner,
        ahead: RunAhead | None,
        scheduler: Scheduler,
        state: ProcessorState,
        speculation: Speculation,
        companions: Companions,
        beams: BeamSearches,
        contrastive: ContrastiveSearches,
    ) -> None:
        self._runner, self._scheduler, self._state, self._ahead = runner, scheduler, state, ahead
        self._speculation, self._companions = speculation, companions
        self._beams, self._contrastive, self._pipeline = beams, contrastive, state.pipeline
        self._device = state.history.device
        self._has_given = False  # whether any request so far had a given output or a prefix
        self._may_hold = False  # whether tokens of any request so far may be taken back
        self.has_asked = False

    def expect(self, request: Request) -> None:
        """Be ready for what a request asks of the steps in which it runs."""
        self._has_given |= request.given is not None or bool(request.prefix)
        self._may_hold |= can_rewind(request)
        self.has_asked |= request.logprobs is not None or request.prompt_logprobs is not None

    def run(self) -> StepResult | None:
        """Run the model and choose tokens. Commits nothing and emits no event."""
        propose = self._propose if self._has_given or self._may_hold else self._speculation.propose
        step = self._scheduler.plan(propose, self._companions.is_behind)
        for fork in step.forks:
            self._runner.fork(fork.source, fork.target)
            self._runner.truncate(fork.target, fork.length)
        pairing = self._companions.pair(step)
        if not pairing.has_feeds:
            return None
        sampled = step.sampled
        rows = self._state.rows(sampled)
        own, others = pairing.forward()
        if others.inner and others.inner.states is not None:
            self._contrastive.read(step, others.inner.states.to(self._device))
        scored = None
        if step.plan.num_scored:
            own, scored = split_scores(step.plan.feeds, [one.scoring for one in step.sequences], own)
        logits = pairing.guided(own, others).to(self._device)
        if not sampled:
            if scored:
                scored.take(scored.measured.packed.tolist())
            return None
        watch, given = None, given_tokens(sampled, self._device) if self._has_given else None
        if self.has_asked:
            watch = Watch.of([one.request.logprobs for one, _ in sampled], own, logits, rows, given)
        ranked = choices = processed = None
        groups = [sequence.group for sequence, _ in sampled]
        is_searching = groups.count(None) < len(groups)
        verified: Verified
        if watch or given is not None or rows.drafts.shape[1] or is_searching:
            verified, processed = self._verified(sampled, logits, rows, given, watch, is_searching)
        else:  # only the tokens are needed, not the processed logits
            verified = verify(self._state.chooser(logits, rows), rows)
        if processed is not None and is_searching:
            ranked = self._beams.rank(sampled, first_rows(rows), processed)
            choices = self._contrastive.choose(sampled, first_rows(rows), processed)
        measured = None
        if watch and processed is not None:
            measured = (watch.measured(processed, verified[0]), watch.owners)
        launch = partial(self._ahead.launch, sampled, verified[0], self._scheduler) if self._ahead else None
        parts = (ranked, choices, measured, scored)
        result = StepResult.read(sampled, own, logits, rows, verified, *parts, meanwhile=launch)
        if self._ahead:
            self._ahead.read(result.tokens)
        if watch and processed is not None and (ranked or choices):
            result = replace(result, inspect=partial(watch.of_beams, processed))
        self._speculation.verified(step.plan)
        return result

    def _verified(
        self,
        sampled: SampledSequences,
        logits: Tensor,
        rows: Rows,
        given: Tensor | None,
        watch: Watch | None,
        is_searching: bool,
    ) -> tuple[Verified, Tensor | None]:
        """Return the verified tokens, and the processed logits [R, V] if anything reads them."""
        verifier = self._state.verifier
        reads = watch is not None or is_searching or verifier.reads(rows)
        seen = watch.seen if watch and watch.ids.shape[1] else None  # no ids: nothing asks what masks them
        processed, tokens = self._state.chooser.process(logits, rows, seen, reads=reads)
        if not reads and given is None and not any(sequence.request.best_of for sequence, _ in sampled):
            return (verifier.tokens(processed, rows, tokens), None), None
        draw = partial(verifier, processed, rows, self._speculation.proposal(sampled), tokens)
        return draw() if given is None else accept_given(given, draw, sampled), processed

    def _propose(self, sequences: list[Sequence]) -> dict[int, tuple[int, ...]]:
        """Return the drafts of sequences: of the drafter, or the tokens that are held or known."""
        given = [one for one in sequences if one.known]
        drawn = [one for one in sequences if not one.known]
        runs = self._speculation.propose([one for one in drawn if not one.held])
        rows = self._scheduler.score_rows // 2  # the logits are held twice: raw and processed
        return runs | held_drafts(drawn) | given_drafts(given, self._pipeline, self._runner.spec, rows)

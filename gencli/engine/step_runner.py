"""Runs the steps of the generate loop: plan, forward pass, choice of tokens, and their way into the
sequences. What a feature adds is in its hook (see gencli.engine.step).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from collections.abc import Sequence as Items
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from gencli.core.events import Event
from gencli.core.request import StepPlan
from gencli.engine.endings import Endings
from gencli.engine.scheduler import OomGuard, Scheduler
from gencli.engine.sequence import Sequence, Taken
from gencli.engine.slot_state import ProcessorState, SlotOwners
from gencli.engine.step import Settle, Step, StepHook
from gencli.engine.tree_walk import plant
from gencli.models.model_runner import LayeredRunner, ModelRunner
from gencli.speculative.drafter import DraftTree
from processors.graphs import start_download, upload_ints
from processors.rows import Rows
from processors.verification import matched


class StepRunner:
    """Runs the model on the feeds of a step, chooses the tokens of its sequences, and appends them."""

    def __init__(
        self,
        runner: ModelRunner,
        scheduler: Scheduler,
        state: ProcessorState,
        owners: SlotOwners,
        endings: Endings,
        guard: OomGuard,
    ) -> None:
        self._runner, self._scheduler, self._state = runner, scheduler, state
        self._owners, self._endings, self._guard = owners, endings, guard
        self._pipeline, self._rewinds = state.pipeline, bool(runner.spec.rope_switches)

    def run(self) -> Step | None:
        """Run the model and choose tokens; None if no token is chosen. Commits nothing, emits no event."""
        hooks = self._owners.active
        behind = {sequence for hook in hooks for sequence in hook.behind()} if hooks else ()
        trees = dict[int, DraftTree]()
        step = self._scheduler.plan(partial(self._propose, trees) if hooks else None, behind)
        if trees:
            plant(step, trees)
        for fork in step.forks:
            self._runner.fork(fork.source, fork.target)
            self._runner.truncate(fork.target, fork.length)
        for hook in hooks:
            hook.before(step)
        if not (step.plan.feeds or step.is_busy):
            return None
        if not step.trees:  # whose paths are not known yet
            slots, drafts = [s.slot for s, _ in step.sampled], [drafts for _, drafts in step.sampled]
            step.rows = self._pipeline.prepare(Rows.build(self._state.history, slots, drafts))
        self._forward(step)
        for hook in hooks:
            hook.on_logits(step)
        if not step.sampled:
            for tensor, read in step.packed:
                read(tensor.tolist())
            return None
        self._choose(step)
        for hook in hooks:
            hook.on_tokens(step)
        self._read(step, hooks)
        for hook in hooks:
            hook.on_host(step)
        return step

    def _propose(self, trees: dict[int, DraftTree], sequences: list[Sequence]) -> dict[int, tuple[int, ...]]:
        """Return the draft tokens by slot: of a tree, which is added to `trees`, those of all nodes."""
        drafts: dict[int, tuple[int, ...]] = {}
        for hook in self._owners.active:
            for slot, run in hook.propose(sequences).items():
                if isinstance(run, DraftTree):
                    trees[slot], run = run, run.tokens
                drafts[slot] = run
        return drafts

    def _forward(self, step: Step) -> None:
        """Run the model once, with the feeds of companions behind those of the plan."""
        plan, runner = step.plan, self._runner
        if step.companions:
            plan = StepPlan((*plan.feeds, *step.companions))
        if not plan.feeds:
            step.own = torch.empty(0, runner.spec.vocab_size)
        elif step.layers or step.lanes:
            layered = cast(LayeredRunner, runner)
            step.own, step.inner = layered.forward_layers(plan, step.layers, step.lanes, step.taps)
        else:
            step.own = runner.forward(plan)
        for sequence, feed in zip(step.sequences, step.plan.feeds, strict=True):
            sequence.num_computed_tokens += len(feed.tokens)
        if step.companions:
            counts = [step.plan.num_rows, *(feed.num_logits for feed in step.companions)]
            step.own, *others = torch.split(step.own, counts)
            step.companion_logits = tuple(others)
        step.logits = step.own

    def _choose(self, step: Step) -> None:
        """Choose the tokens. Where only the tokens are needed, the last stages and the draw are fused."""
        # Sampling needs float64, which Apple's GPU lacks: there the logits processors run on the CPU.
        step.logits = logits = step.logits.to(self._state.history.device)
        rows, state, verifier = step.rows, self._state, self._state.verifier
        if not (step.reads or step.force or rows.drafts.shape[1]):
            step.tokens = state.chooser(logits, rows)
            return
        step.reads |= verifier.reads(rows)
        if step.drawn is not None and not (step.reads or step.force or step.counts_drafts):
            step.tokens = upload_ints(step.drawn, step.logits.device)
            return
        step.processed, tokens = state.chooser.process(logits, rows, step.seen, reads=step.reads)
        if not (step.reads or step.force or step.counts_drafts):
            step.tokens = verifier.tokens(step.processed, rows, tokens)
            return
        proposal = step.proposal() if step.proposal else None
        draw = partial(verifier, step.processed, rows, proposal, tokens)
        step.tokens, step.counts = step.force(draw) if step.force else draw()

    def _read(self, step: Step, hooks: Items[StepHook]) -> None:
        """Copy the tokens and what hooks packed to the host, in one transfer: the only wait of the step."""
        tokens, counts = step.tokens, step.counts
        table = tokens if counts is None else torch.cat([counts[:, None], tokens], dim=1)
        tensors, flat = [table], table
        if step.packed:
            tensors += [tensor.to(table.device) for tensor, _ in step.packed]
            flat = torch.cat([tensor.double().flatten() for tensor in tensors])
        if launching := [hook for hook in hooks if hook.launches]:
            download = start_download(flat)  # on a GPU the host does not wait for work that is launched now
            for hook in launching:
                hook.meanwhile(step)
            values = download()
        elif step.drawn is not None and counts is None and not step.packed:
            values = step.drawn  # which the host has read in its walk
        else:
            values = flat.tolist()
        parts = _tables(values, tensors) if step.packed else iter([values])
        lines: list[Any] = next(parts)
        if counts is not None:
            step.ids = [[int(token) for token in line[: int(count)]] for count, *line in lines]
        elif step.packed or step.rows.drafts.shape[1]:
            step.ids = matched([int(token) for token in lines], step.rows)
        else:
            step.ids = [[token] for token in lines]
        for (_, read), part in zip(step.packed, parts, strict=True):
            read(part)

    def take(self, step: Step) -> list[Event]:
        """Append the tokens of a step to their sequences and commit them; return the events."""
        hooks, events, step.now = self._owners.active, list[Event](), time.monotonic()
        step.taken, step.kept = [None] * len(step.sampled), []
        for hook in hooks:
            hook.take(step, self.append)
        for index, (sequence, _) in enumerate(step.sampled):
            if sequence.group is None and step.taken[index] is None:
                step.taken[index] = self.append(step, index)
        for hook in hooks:
            try:
                hook.on_taken(step)
            except Exception as fault:  # a draft head computes features there
                if not self._guard.takes(fault):
                    raise
        for (sequence, _), result in zip(step.sampled, step.taken, strict=True):
            if result is None:
                continue
            taken, error = result
            events += sequence.drain(step.now, error)
            if sequence.finish is not None or error is not None:
                self._endings.remove(sequence)
            else:
                step.kept.append((sequence, taken))
        for hook in hooks:
            events += hook.after(step)
        try:
            self._commit(step.kept)
        except Exception as fault:  # what was committed cannot be undone, so all sequences restart
            if not self._guard.takes(fault):
                raise
        return events

    def append(self, step: Step, index: int, settle: Settle | None = None) -> tuple[Taken, Exception | None]:
        """Append the tokens of one sequence; return those that were appended, and the error if it failed."""
        (sequence, _), tokens = step.sampled[index], step.ids[index]
        valid = tokens if min(tokens) >= 0 else [token for token in tokens if token >= 0]
        followed = self._pipeline.preview(sequence.slot, valid) if self._pipeline.previews else ()
        certain, is_whole = settle(sequence, valid, followed, step.now) if settle else (valid, True)
        taken, error = sequence.take(certain, followed, now=step.now, logprobs=step.logprobs.get(index, ()))
        if sequence.cut:
            sequence.end_cut(self._endings.completion(sequence, taken.ids))
        if error is None and sequence.finish is None and valid is not tokens and is_whole:
            row = step.first_rows[index] + len(valid)
            error = self._pipeline.explain_failure(step.logits, step.rows, row)
        return taken, error

    def _commit(self, kept: list[tuple[Sequence, Taken]]) -> None:
        """Commit the tokens of continuing sequences, and truncate KV lanes after rejected drafts."""
        slots, ids, forced = list[int](), list[tuple[int, ...]](), list[tuple[bool, ...]]()
        for sequence, taken in kept:
            if taken.ids:
                slots.append(sequence.slot)
                ids.append(taken.ids)
                forced.append(taken.forced)
        self._state.history.append(slots, ids, forced)
        if self._pipeline.commits:
            for slot, tokens in zip(slots, ids, strict=True):
                self._pipeline.commit(slot, tokens)
        for sequence, _ in kept:
            if self._rewinds and self._scheduler.rewind(sequence):
                self._runner.release(sequence.slot)
            elif sequence.lag < 1 and sequence.rollback():
                self._runner.truncate(sequence.slot, sequence.num_computed_tokens)


def _tables(values: list[float], tensors: list[Tensor]) -> Iterator[list[Any]]:
    """Cut the values of tensors [Q, N] or [M] into rows or lists again."""
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.numel()
        width = tensor.shape[1] if tensor.dim() > 1 else 0
        yield [values[at : at + width] for at in range(start, end, width)] if width else values[start:end]

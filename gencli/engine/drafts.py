"""Speculative decoding: a drafter proposes tokens for each step, and learns how many were accepted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from gencli.core.events import Drafted, Event
from gencli.core.request import NO_DRAFTER, Request, shared_length
from gencli.core.tree_shapes import MAX_NODES
from gencli.engine.rewind import can_rewind
from gencli.engine.sequence import SampledSequences, Sequence
from gencli.engine.step import Step, StepHook
from gencli.engine.tree_walk import pruned
from gencli.errors import UsageError
from gencli.models.model_runner import ModelRunner, ModelSpec
from gencli.plugins.plugin_registry import DraftGuard
from gencli.speculative.adaptive_drafts import Clock, work_clock
from gencli.speculative.drafter import (
    DraftAsk,
    Drafter,
    DraftTree,
    Drawn,
    Features,
    MeasuredStep,
    SampleTokens,
)
from processors.graphs import upload
from processors.pipeline import Pipeline
from processors.registry import Registry
from processors.verification import Proposal


@dataclass(slots=True)
class _RunningStep:
    """Measurements of the current step. Times are seconds."""

    drawn: dict[int, Drawn] = field(default_factory=dict)  # sampled drafts by slot
    asked: frozenset[int] = frozenset()  # slots that the drafter was asked for
    draft_seconds: float = 0.0
    began: float = 0.0
    seconds: float = 0.0
    work: float = 0.0  # by work_clock: the start, and after `verified` the duration
    lanes: int = 0
    is_measured: bool = False  # without prefill
    is_plain: bool = False  # without prefill and drafts
    drafted: int = 0  # draft tokens, in a tree all nodes
    accepted: int = 0


class Speculation(StepHook):
    """Asks a drafter once per step, for all slots that may have drafts.

    Statistics use the wall clock, drafters that weigh costs use work_clock; a given `clock` replaces both.
    Timing never changes a text: requests with `drafts_decide` have a fixed number of drafts.
    """

    def __init__(
        self,
        drafter: Drafter,
        pipeline: Pipeline,
        registry: Registry,
        spec: ModelSpec,
        *,
        amateurs: Mapping[str, ModelRunner] | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self._takes_trees = {"": spec.trees} | {name: a.spec.trees for name, a in (amateurs or {}).items()}
        self._drafter, self._pipeline, self._spec = drafter, pipeline, spec
        self._clock, self._work = clock or time.perf_counter, clock or work_clock(spec.device)
        self._guard = DraftGuard(registry)
        self._noted: set[str] = set()  # notices so far
        self._step = _RunningStep()
        self._may_branch = False
        self._feed_seconds = 0.0  # that the drafter took for hidden states since the last draft

    def needs_states(self, request: Request) -> bool:
        """Whether the drafts, and by them the text, depend on the hidden states of the whole prompt."""
        return request.drafts_decide and bool(self._drafter.taps_for(request))

    def check(self, request: Request) -> None:
        """Raise UsageError if the request names a drafter that this engine lacks."""
        name = request.drafting.drafter
        if name not in ("", NO_DRAFTER) and not self._drafter.handles(replace(request, jump="off")):
            raise UsageError(
                f"The drafter {name!r} is not among those of this run.",
                hint="A model drafts where the whole run names it: `draft` = NAME.",
            )

    def guard(self, request: Request) -> Iterator[str]:
        """Disable drafts for plugin stages that fail with them. Yield the notices, each once."""
        is_given = request.given is not None or bool(request.prefix)
        if not (self._drafter.handles(request) or is_given or can_rewind(request)):
            return
        policy, notices = f"`verify` = {request.verification.policy}", list[str]()
        if request.verification.is_lossy:
            notices += [
                f"{policy} lets drafts stand that the model would not have chosen: the text is another one."
            ]
        if request.drafting.tokens is None and (count := request.num_drafts):
            notices += [f"With {policy} the number of drafts decides the text: it is {count} at a time."]
        if reason := self._why_chains(request):
            notices += [f"`draft_tree` has no effect, drafts are chains: {reason}."]
        yield from [text for text in notices if text not in self._noted]
        self._noted.update(notices)
        for name, fault in self._guard.faults(request.chain):
            self._pipeline.run_stepwise(name)
            yield f"The stage {name} runs without drafts, as it fails with them: {fault}"

    def wants(self, sequence: Sequence) -> bool:
        return sequence.group is None and self._drafter.handles(sequence.request)

    def admit(self, sequence: Sequence) -> None:
        self._drafter.admit(sequence.slot, sequence.request)
        sequence.record_drafts(Drafted())

    def release(self, slot: int) -> None:
        self._drafter.release(slot)

    def trim(self) -> None:
        self._drafter.trim()

    def propose(self, sequences: list[Sequence]) -> dict[int, tuple[int, ...] | DraftTree]:
        """Return draft tokens by slot, for the sequences whose next token is neither known nor held."""
        self._may_branch = not any(sequence.known for sequence in sequences)  # which have a column a draft
        sequences = [sequence for sequence in sequences if not (sequence.known or sequence.held)]
        asks = [ask for sequence in sequences if (ask := self._ask(sequence))]
        start = self._clock()
        runs = self._drafter.propose(asks) if asks else ()
        drafts = {
            ask.slot: self._tree(run, ask) if isinstance(run, DraftTree) else tuple(run)[: ask.most]
            for ask, run in zip(asks, runs, strict=True)
            if run
        }
        now = self._clock()
        drawn = {ask.slot: run for ask, run in zip(asks, runs, strict=True) if isinstance(run, Drawn)}
        asked = frozenset(ask.slot for ask in asks)
        seconds, self._feed_seconds = now - start + self._feed_seconds, 0.0
        self._step = _RunningStep(drawn, asked, seconds, now, work=self._work())
        return drafts

    def _tree(self, tree: DraftTree, ask: DraftAsk) -> tuple[int, ...] | DraftTree:
        """Return what can be verified of a tree: its principal chain, where no tree can."""
        return pruned(tree, ask, self._pipeline) if ask.nodes else tree.principal[: ask.most]

    def _proposal(self, sampled: SampledSequences) -> Proposal | None:
        """Return the distributions q of the step's sampled drafts; None if there are none."""
        if not self._step.drawn:
            return None
        drawn = [self._step.drawn.get(sequence.slot) for sequence, _ in sampled]
        sizes = [len(run) for _, run in sampled]
        pairs = [(run, size) for run, size in zip(drawn, sizes, strict=True) if run and size]
        if not pairs:
            return None
        logits = torch.stack([row for run, size in pairs for row in run.logits[:size]])
        probabilities = [q for run, size in pairs for q in run.probabilities[:size]]
        flags = tuple(run is not None for run, size in zip(drawn, sizes, strict=True) for _ in range(size))
        return Proposal(logits, flags, upload(probabilities, logits.device))

    def before(self, step: Step) -> None:
        step.proposal = partial(self._proposal, step.sampled)
        if not self._drafter.taps:
            return
        for fork in step.forks:
            self._drafter.fork(fork.source, fork.target)
        tapped = [
            s.slot for s in step.sequences if s.slot in self.slots and self._drafter.taps_for(s.request)
        ]
        if tapped:
            step.taps |= {*self._drafter.taps}
            step.lanes |= {*tapped}

    def on_logits(self, step: Step) -> None:
        """Pass on the states of prompt tokens, which no draft can change."""
        chosen = {sequence.slot for sequence, _ in step.sampled}
        self._feed(step, [sequence for sequence in step.sequences if sequence.slot not in chosen])

    def on_taken(self, step: Step) -> None:
        """Pass on the states of the tokens that stay: the last one and accepted drafts."""
        self._feed(step, [sequence for sequence, _ in step.sampled])

    def _feed(self, step: Step, sequences: list[Sequence]) -> None:
        """Pass on the states of the tokens that these sequences were fed and that are in their texts."""
        if not self._drafter.taps or step.inner is None:
            return
        start, parts = self._clock(), list[Features]()
        slots = self.slots & {sequence.slot for sequence in sequences}  # searches have states, and no drafts
        for index, states in step.states():
            sequence, feed = step.sequences[index], step.plan.feeds[index]
            if feed.lane in slots and self._drafter.taps_for(sequence.request):
                held = [*sequence.output, *sequence.held] if sequence.held else sequence.output
                text = SampleTokens(sequence.prompt, held)
                kept = shared_length(feed.tokens, text[feed.start : feed.end])
                rows = tuple([states[tap][:kept] for tap in self._drafter.taps])
                parts.append(Features(sequence.slot, text, feed.start, feed.start + kept, rows))
        if parts:
            self._drafter.feed(parts)
            self._feed_seconds += self._clock() - start

    def on_host(self, step: Step) -> None:
        """Stop the clock, and record how many drafts of each sequence were accepted."""
        plan, running = step.plan, self._step
        running.seconds, running.work = self._clock() - running.began, self._work() - running.work
        running.is_measured = plan.num_rows == plan.num_tokens and not plan.num_scored
        chosen = (feed.num_logits > feed.num_scored for feed in plan.feeds)
        running.lanes = len(plan.feeds) if running.is_measured else sum(chosen)
        running.is_plain = running.is_measured and plan.num_tokens == len(plan.feeds)
        for (sequence, drafts), tokens in zip(step.sampled, step.ids, strict=True):
            is_drawn = sequence.group is None and sequence.request.given is None and not sequence.is_in_prefix
            if not is_drawn or not (drafts or sequence.drafted is not None):
                continue
            proposed = 0 if sequence.held else len(drafts)
            accepted = min(proposed, len(tokens) - 1)
            nodes = len(step.trees.get(sequence.slot, ()))
            running.drafted += nodes or proposed
            running.accepted += accepted
            if proposed:
                self._drafter.observe(sequence.slot, proposed=proposed, accepted=accepted)
            if sequence.drafted is not None:
                drafting = (
                    running.draft_seconds / len(running.asked) if sequence.slot in running.asked else 0.0
                )
                verifying = running.seconds / running.lanes if running.is_measured else 0.0
                marks = tuple(int(position < accepted) for position in range(proposed))
                timed, plain = (1 + accepted if running.is_measured else 0), int(running.is_plain)
                costs = drafting, verifying, timed, plain, plain * verifying
                sequence.record_drafts(Drafted(1, (1,) * proposed, marks, *costs, nodes=nodes))

    def after(self, step: Step) -> Iterable[Event]:
        """Pass the measurement of the step to the drafter, unless it included prefill."""
        running = self._step
        if running.is_measured:
            self._drafter.measure(
                MeasuredStep(running.lanes, running.drafted, running.accepted, running.work)
            )
        return ()

    def _why_chains(self, request: Request) -> str:
        """Return why a request that allows trees never gets one; "" if it may."""
        is_drafted = self._spec.can_rollback and self._drafter.handles(replace(request, jump="off"))
        if not (request.drafting.nodes and request.verification.is_exact and is_drafted):
            return ""
        for name in ("", request.guidance.amateur):
            if not self._takes_trees[name]:
                return f"{name or self._spec.name} takes no trees"
        return "" if self._drafter.has_trees_for(request) else "the drafter proposes no trees"

    def _ask(self, sequence: Sequence) -> DraftAsk | None:
        if sequence.slot not in self.slots or not self._spec.can_rollback:
            return None
        if held := self._pipeline.sequential(sequence.slot):
            sequence.record_drafts(Drafted(held=held))
            return None
        # Drafts never cross a rope switch, which would restart the sequence's prefill. Every step chooses
        # one token besides them.
        limit = min(sequence.room, self._spec.limit(len(sequence)) - len(sequence)) - 1
        text, nodes, request = SampleTokens(sequence.prompt, sequence.output), 0, sequence.request
        is_exact = request.verification.is_exact and self._takes_trees[""]
        if is_exact and self._may_branch and self._takes_trees[request.guidance.amateur]:
            nodes = min(request.drafting.nodes, MAX_NODES, sequence.context - len(sequence))
        return DraftAsk(sequence.slot, text, limit, max(0, nodes)) if limit > 0 else None

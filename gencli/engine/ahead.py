"""Tokens ahead of the host: the forward pass that is launched before the last step is read, drafts of
speculative decoding, and tokens that may be taken back, which are drafts of the next step.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from gencli.core.events import Drafted
from gencli.core.request import NO_DRAFTER, Feed, Request, StepPlan
from gencli.engine.scheduler import Scheduler
from gencli.engine.sequence import SampledSequences, Sequence
from gencli.errors import UsageError
from gencli.models.model_runner import AheadRunner, Inner, ModelRunner, ModelSpec
from gencli.plugins.plugin_registry import DraftGuard
from gencli.speculative.adaptive_drafts import Clock, work_clock
from gencli.speculative.drafter import DraftAsk, Drafter, Drawn, Measured, Text
from processors.base import GrammarStatus, Processor, Settled
from processors.catalog import BanParams
from processors.errors import is_out_of_memory
from processors.graphs import upload, upload_ints
from processors.pipeline import Pipeline
from processors.registry import Registry
from processors.verification import Proposal

# A pass whose guess fails in part costs a second pass, which takes longer than a used one saves. So guesses
# are made only while this share of recent ones came true; each new guess has the weight of a tenth.
_MIN_SHARE, _WEIGHT = 0.75, 0.1
_MAX_FULL = 2  # passes ahead that may run out of memory before no more are launched


def make_ahead(runner: ModelRunner, wanted: bool | None) -> RunAhead | None:
    """Return the runner that runs ahead; None if `wanted` is false, or None and the device is not CUDA.

    Raises UsageError if `wanted` is true and the model does not support it.
    """
    spec = runner.spec
    if wanted and not spec.can_run_ahead:
        raise UsageError(f"{spec.name} takes no tokens that the host has not read, so no step can run ahead.")
    is_on = spec.can_run_ahead and spec.device.type == "cuda" if wanted is None else wanted
    return RunAhead(cast(AheadRunner, runner)) if is_on else None


def next_feeds(sampled: SampledSequences, scheduler: Scheduler) -> list[int]:
    """Return indices of the sampled sequences that the next step feeds with one token each and nothing else.

    Sequences that end at their limit in this step are left out. Returns [] if the next step probably has
    other feeds (prompts, drafts, companions): these need a second pass, while one pass could do both.
    """
    if len(sampled) != len(scheduler.running):
        return []
    going = [index for index, (sequence, _) in enumerate(sampled) if sequence.room > 1]
    if len(going) < len(sampled) and (scheduler.waiting or scheduler.pending):
        return []
    return going if all(_is_plain(*pair) for pair in sampled) else []


def _is_plain(sequence: Sequence, drafts: tuple[int, ...]) -> bool:
    """Whether a sequence continues with the one token drawn in this step, in a plain forward pass.

    An explained sequence reads more of the step than its token, so the host would wait for the pass ahead.
    """
    request = sequence.request
    is_alone = sequence.group is None and request.dola is None and not request.guidance.is_on
    return is_alone and request.trace is None and not (drafts or sequence.held or sequence.known)


@dataclass(slots=True, eq=False)
class _Guess:
    """Feeds expected in the next step: by lane the feed, and the index of its row in `logits` [N, V].

    The token of a feed is -1 until it is read. `indices`: for each row, the index of its sequence among the
    sampled ones. `is_fed`: whether the pass was launched.
    """

    feeds: dict[int, tuple[Feed, int]]
    indices: list[int]
    is_fed: bool = False
    logits: Tensor | None = None

    def row(self, feed: Feed) -> int | None:
        """Return the row of a feed if it was guessed exactly; else None."""
        expected, row = self.feeds.get(feed.lane, (None, None))
        return row if feed == expected else None


class RunAhead:
    """A runner whose next forward pass may already be running.

    Callers see lanes without the guessed tokens: these are removed when the lane is truncated, copied,
    released or fed other tokens, and when its sequence ends (`forget`). `num_launched`, `num_used`: passes
    ahead so far, and those that replaced the whole pass of the next step. `notices` are for the user.
    """

    def __init__(self, runner: AheadRunner) -> None:
        self._runner = runner
        self._guess: _Guess | None = None
        self._share = 1.0  # share of recent guesses that came true
        self._num_full = 0
        self.num_launched = self.num_used = 0
        self.notices: list[str] = []

    @property
    def spec(self) -> ModelSpec:
        """Properties of the loaded model."""
        return self._runner.spec

    def launch(self, sampled: SampledSequences, tokens: Tensor, scheduler: Scheduler) -> None:
        """Launch the guessed feeds of the next step with `tokens` [Q, 1]: the step's draws, -1 for none."""
        if self._num_full >= _MAX_FULL or not (indices := next_feeds(sampled, scheduler)):
            return
        sequences = [sampled[index][0] for index in indices]
        starts = [(sequence.slot, sequence.num_computed_tokens) for sequence in sequences]
        feeds = {lane: (Feed(lane, start, (-1,)), row) for row, (lane, start) in enumerate(starts)}
        self._guess = guess = _Guess(feeds, indices)
        if self._share < _MIN_SHARE:
            return
        ids = tokens[:, 0]
        if len(indices) < len(sampled):
            ids = ids.index_select(0, upload_ints(indices, ids.device))
        plan = StepPlan(tuple(Feed(lane, start, (0,)) for lane, start in starts))
        guess.is_fed = True  # from here on lanes may be longer, even if the pass is interrupted
        try:
            guess.logits = self._runner.forward_ahead(plan, ids.clamp(min=0))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._num_full += 1
            if self._num_full == _MAX_FULL:
                self.notices.append(
                    "The memory has no room for steps ahead: from now on each step is read first."
                )
        guess.is_fed = guess.logits is not None
        self.num_launched += guess.is_fed

    def read(self, tokens: list[list[int]]) -> None:
        """Fill in the guessed tokens from the step's tokens on the host, by sampled sequence."""
        if (guess := self._guess) is None:
            return
        for lane, (feed, row) in guess.feeds.items():
            guess.feeds[lane] = Feed(lane, feed.start, (tokens[guess.indices[row]][0],)), row

    def forward(self, plan: StepPlan) -> Tensor:
        """Run ModelRunner.forward, except for guessed feeds, whose logits come from the pass ahead."""
        if (guess := self._guess) is None:
            return self._runner.forward(plan)
        rows = [guess.row(feed) for feed in plan.feeds]
        is_true = None not in rows
        self._share += _WEIGHT * (is_true - self._share)
        taken = [row for row in rows if row is not None]
        if guess.logits is None or not taken:
            self._drop()
            return self._runner.forward(plan)
        self._drop({feed.lane for feed, row in zip(plan.feeds, rows, strict=True) if row is not None})
        if is_true:
            self.num_used += 1
            is_whole = taken == [*range(len(guess.indices))]
            return guess.logits if is_whole else _select(guess.logits, taken)
        others = tuple(feed for feed, row in zip(plan.feeds, rows, strict=True) if row is None)
        logits = torch.cat([guess.logits, self._runner.forward(StepPlan(others, plan.num_scored))])
        return _select(logits, _order(plan.feeds, rows, len(guess.indices)))

    def forward_layers(
        self, plan: StepPlan, layers: Iterable[int], lanes: Collection[int] = ()
    ) -> tuple[Tensor, Inner]:
        """Run LayeredRunner.forward_layers; the pass ahead is dropped because it keeps no hidden states."""
        self._drop()
        return self._runner.forward_layers(plan, layers, lanes)

    def truncate(self, lane: int, length: int) -> None:
        """Truncate the lane to its first `length` tokens."""
        self.forget(lane)
        self._runner.truncate(lane, length)

    def fork(self, source: int, target: int) -> None:
        """Copy lane `source` to lane `target`."""
        self.forget(target)
        self._runner.fork(source, target)
        if self._guess and self._guess.is_fed and source in self._guess.feeds:
            self._runner.truncate(target, self._guess.feeds[source][0].start)

    def release(self, lane: int) -> None:
        """Empty the lane."""
        self.forget(lane)
        self._runner.release(lane)

    def free_cache(self) -> None:
        """Free the memory of the lanes; all of them must be empty."""
        self._runner.free_cache()

    def forget(self, lane: int) -> None:
        """Drop the guessed feed of a lane, and its token in the lane."""
        if (guess := self._guess) is None or lane not in guess.feeds:
            return
        feed, _ = guess.feeds.pop(lane)
        if guess.is_fed:
            self._runner.truncate(lane, feed.start)
        if not guess.feeds:
            self._guess = None  # frees its logits

    def _drop(self, used: Collection[int] = ()) -> None:
        """End the guess; remove the guessed tokens from all lanes but the `used` ones."""
        guess, self._guess = self._guess, None
        for lane, (feed, _) in guess.feeds.items() if guess and guess.is_fed else ():
            if lane not in used:
                self._runner.truncate(lane, feed.start)


def _order(feeds: Iterable[Feed], rows: Iterable[int | None], size: int) -> list[int]:
    """Return the row of each feed's logits: of a guessed feed its own row, of other feeds from `size` on."""
    order = list[int]()
    for feed, row in zip(feeds, rows, strict=True):
        order += range(size, size + feed.num_logits) if row is None else (row,)
        size += feed.num_logits if row is None else 0
    return order


def _select(logits: Tensor, rows: list[int]) -> Tensor:
    return logits.index_select(0, upload_ints(rows, logits.device))


@dataclass(slots=True)
class _Running:
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
    drafted: int = 0
    accepted: int = 0


class Speculation:
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
        clock: Clock | None = None,
    ) -> None:
        self._drafter, self._pipeline, self._spec = drafter, pipeline, spec
        self._clock, self._work = clock or time.perf_counter, clock or work_clock(spec.device)
        self._guard = DraftGuard(registry)
        self._slots: set[int] = set()  # slots admitted to the drafter
        self._noted: set[str] = set()  # notices so far
        self._step = _Running()

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
        new = [text for text in _draft_notices(request) if text not in self._noted]
        self._noted.update(new)
        yield from new
        for name, fault in self._guard.faults(request.chain):
            self._pipeline.run_stepwise(name)
            yield f"The stage {name} runs without drafts, as it fails with them: {fault}"

    def admit(self, sequence: Sequence) -> None:
        """Start drafting for a sequence, which has its slot."""
        if self._drafter.handles(sequence.request):
            self._drafter.admit(sequence.slot, sequence.request)
            self._slots.add(sequence.slot)
            sequence.record_drafts(Drafted())

    def release(self, slot: int) -> None:
        """Stop drafting for the sample of a slot."""
        if slot in self._slots:
            self._slots.remove(slot)
            self._drafter.release(slot)

    def trim(self) -> None:
        """Free memory after out-of-memory. No slot is in use."""
        self._drafter.trim()

    def propose(self, sequences: list[Sequence]) -> dict[int, tuple[int, ...]]:
        """Return draft tokens by slot, for the sequences whose next token is about to be chosen."""
        asks = [ask for sequence in sequences if (ask := self._ask(sequence))] if self._slots else []
        start = self._clock()
        runs = self._drafter.propose(asks) if asks else ()
        drafts = {ask.slot: tuple(run)[: ask.most] for ask, run in zip(asks, runs, strict=True) if run}
        now = self._clock()
        drawn = {ask.slot: run for ask, run in zip(asks, runs, strict=True) if isinstance(run, Drawn)}
        asked = frozenset(ask.slot for ask in asks)
        self._step = _Running(drawn, asked, now - start, now, work=self._work())
        return drafts

    def proposal(self, sampled: SampledSequences) -> Proposal | None:
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

    def verified(self, plan: StepPlan) -> None:
        """Stop the clock: the tokens of the step are on the host."""
        step = self._step
        step.seconds, step.work = self._clock() - step.began, self._work() - step.work
        step.is_measured = plan.num_rows == plan.num_tokens and not plan.num_scored
        chosen = (feed.num_logits > feed.num_scored for feed in plan.feeds)
        step.lanes = len(plan.feeds) if step.is_measured else sum(chosen)
        step.is_plain = step.is_measured and plan.num_tokens == len(plan.feeds)

    def observe(self, sequence: Sequence, *, proposed: int, accepted: int) -> None:
        """Record that `accepted` of `proposed` draft tokens of the sequence were accepted."""
        step = self._step
        step.drafted, step.accepted = step.drafted + proposed, step.accepted + accepted
        if proposed:
            self._drafter.observe(sequence.slot, proposed=proposed, accepted=accepted)
        if sequence.drafted is not None:
            sequence.record_drafts(self._share(sequence.slot, proposed, accepted))

    def conclude(self) -> None:
        """End the step: pass its measurement to the drafter, unless it included prefill."""
        step = self._step
        if step.is_measured:
            self._drafter.measure(Measured(step.lanes, step.drafted, step.accepted, step.work))

    def _ask(self, sequence: Sequence) -> DraftAsk | None:
        if sequence.slot not in self._slots or not self._spec.can_rollback:
            return None
        if held := self._pipeline.sequential(sequence.slot):
            sequence.record_drafts(Drafted(held=held))
            return None
        # Drafts never cross a rope switch, which would restart the sequence's prefill. Every step chooses
        # one token besides them.
        limit = min(sequence.room, self._spec.limit(len(sequence)) - len(sequence)) - 1
        text = Text(sequence.prompt, sequence.output)
        return DraftAsk(sequence.slot, text, limit) if limit > 0 else None

    def _share(self, slot: int, proposed: int, accepted: int) -> Drafted:
        step = self._step
        drafting = step.draft_seconds / len(step.asked) if slot in step.asked else 0.0
        verifying = step.seconds / step.lanes if step.is_measured else 0.0
        marks = tuple(int(position < accepted) for position in range(proposed))
        timed, plain = (1 + accepted if step.is_measured else 0), int(step.is_plain)
        return Drafted(1, (1,) * proposed, marks, drafting, verifying, timed, plain, plain * verifying)


def _draft_notices(request: Request) -> Iterator[str]:
    """Notices for requests whose text depends on the drafts."""
    policy = f"`verify` = {request.verification.policy}"
    if request.verification.is_lossy:
        yield f"{policy} lets drafts stand that the model would not have chosen: the text is another one."
    if request.drafting.tokens is None and request.num_drafts:
        yield f"With {policy} the number of drafts decides the text: it is {request.num_drafts} at a time."


def can_rewind(request: Request) -> bool:
    """Whether the request bans texts with `rewind`, and its tokens are drawn."""
    ban = cast(BanParams | None, request.chain.get("ban"))
    return ban is not None and ban.rewind and not ban.is_off() and request.given is None


def check_rewind(request: Request, spec: ModelSpec, pipeline: Pipeline) -> None:
    """Raise UsageError if the request bans texts with `rewind` and model or chain cannot take tokens back."""
    if not can_rewind(request):
        return
    names = [name for name, _ in request.chain.active()]
    stepwise = next((name for name in names if pipeline.runs_stepwise(name)), "")
    reasons = {
        "`beams`": request.beams is not None,
        "`contrastive_alpha`": request.contrastive is not None,
        f"`verify` = {request.verification.policy}": request.drafts_decide,
        f"{spec.name}, whose layers keep a running state": not spec.can_rollback,
        f"{spec.name}, whose rotary factors depend on the length": bool(spec.rope_switches),
        f"the stage {stepwise}, which needs the token before": bool(stepwise),
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), ""):
        raise UsageError(
            f"A ban with rewind and {reason} do not go together: the output cannot go back.",
            hint="Leave `ban_rewind` out: then the texts are masked before they are complete.",
        )


def held_drafts(sequences: Tokens[Sequence]) -> dict[int, tuple[int, ...]]:
    """Return by slot the held tokens of the sequences that have any."""
    return {sequence.slot: sequence.held for sequence in sequences if sequence.held}


def settle(
    sequence: Sequence,
    tokens: Tokens[int],
    followed: Tokens[GrammarStatus],
    stage: Processor[Any],
    now: float,
) -> tuple[Tokens[int], bool]:
    """Return the certain tokens, and whether no token was taken back. The sequence holds the other tokens."""
    if not stage.may_hold(sequence.slot, tokens):
        sequence.hold(())
        return tokens, True
    copy = sequence.fork()  # whether the text would end with one of these tokens
    taken, error = copy.take(tokens, followed, now=now)
    is_final = error is not None or copy.finish is not None or bool(copy.cut)
    tokens = tokens[: len(taken.ids)] if is_final else tokens
    settled: Settled = stage.settle(sequence.slot, tokens, is_final=is_final)
    sequence.hold(tuple(tokens[settled.certain : settled.certain + settled.held]))
    return tokens[: settled.certain], settled.is_whole

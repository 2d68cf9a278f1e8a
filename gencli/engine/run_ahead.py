"""The forward pass of the next step, launched before the tokens of the last step are read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from gencli.core.request import Feed, StepPlan
from gencli.engine.scheduler import Scheduler
from gencli.engine.sequence import SampledSequences
from gencli.engine.step import Step, StepHook
from gencli.errors import UsageError
from gencli.models.model_runner import AheadRunner, Inner, ModelRunner, ModelSpec, TreeRunner
from processors.errors import is_out_of_memory
from processors.graphs import upload_ints

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
    for sequence, drafts in sampled:
        request = sequence.request
        if sequence.group is not None or request.dola is not None or request.guidance.is_on:
            return []
        # An explained sequence reads more of the step than its token, so the host would wait for the pass.
        if request.trace is not None or drafts or sequence.held or sequence.known:
            return []
    return going


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
        return self._runner.spec

    def launch(self, sampled: SampledSequences, tokens: Tensor, scheduler: Scheduler) -> None:
        """Launch the guessed feeds of the next step with `tokens` [Q, 1] or [Q]: its draws, -1 for none."""
        if self._num_full >= _MAX_FULL or not (indices := next_feeds(sampled, scheduler)):
            return
        sequences = [sampled[index][0] for index in indices]
        starts = [(sequence.slot, sequence.num_computed_tokens) for sequence in sequences]
        feeds = {lane: (Feed(lane, start, (-1,)), row) for row, (lane, start) in enumerate(starts)}
        self._guess = guess = _Guess(feeds, indices)
        if self._share < _MIN_SHARE:
            return
        ids = tokens.reshape(len(sampled), -1)[:, 0]
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
        order, size = (
            list[int](),
            len(guess.indices),
        )  # rows of guessed feeds, and behind them those of others
        for feed, row in zip(plan.feeds, rows, strict=True):
            order += range(size, size + feed.num_logits) if row is None else (row,)
            size += feed.num_logits if row is None else 0
        return _select(logits, order)

    def forward_layers(
        self,
        plan: StepPlan,
        layers: Iterable[int] = (),
        lanes: Collection[int] = (),
        taps: Collection[int] = (),
    ) -> tuple[Tensor, Inner]:
        """Run LayeredRunner.forward_layers; the pass ahead is dropped because it keeps no hidden states."""
        self._drop()
        return self._runner.forward_layers(plan, layers, lanes, taps)

    def truncate(self, lane: int, length: int) -> None:
        self.forget(lane)
        self._runner.truncate(lane, length)

    def compact(self, lane: int, start: int, nodes: Sequence[int]) -> None:
        cast(TreeRunner, self._runner).compact(lane, start, nodes)

    def fork(self, source: int, target: int) -> None:
        self.forget(target)
        self._runner.fork(source, target)
        if self._guess and self._guess.is_fed and source in self._guess.feeds:
            self._runner.truncate(target, self._guess.feeds[source][0].start)

    def release(self, lane: int) -> None:
        self.forget(lane)
        self._runner.release(lane)

    def free_cache(self) -> None:
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


def _select(logits: Tensor, rows: list[int]) -> Tensor:
    return logits.index_select(0, upload_ints(rows, logits.device))


class LaunchAhead(StepHook):
    """Launches the next forward pass while the host waits for the tokens of a step."""

    launches = True

    def __init__(self, runner: RunAhead, scheduler: Scheduler) -> None:
        super().__init__()
        self._runner, self._scheduler = runner, scheduler

    def release(self, slot: int) -> None:
        self._runner.forget(slot)

    def meanwhile(self, step: Step) -> None:
        if not step.lanes:  # whose states the next step needs too, and a pass ahead keeps none
            self._runner.launch(step.sampled, step.tokens, self._scheduler)

    def on_host(self, step: Step) -> None:
        self._runner.read(step.ids)

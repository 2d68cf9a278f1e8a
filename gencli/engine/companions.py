"""The companions of guided samples: which lanes they have, what those hold, what they are fed next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from gencli.core.prefixes import is_worth_copying, shared_length
from gencli.core.request import Request
from gencli.core.step import Feed
from gencli.engine.pairing import Pairing, Part
from gencli.engine.scheduler import Step
from gencli.engine.sequence import Sequence
from gencli.errors import UsageError
from gencli.models.base import ModelRunner

__all__ = ["Companions"]

_CATCH_UP = 64  # tokens; a companion that is farther behind reads, and its sample waits


@dataclass(slots=True, eq=False)
class _Lane:
    """A lane and the tokens it holds: those of a companion, or of one that has left."""

    runner: ModelRunner
    number: int
    tokens: list[int] = field(default_factory=list)

    def shorten(self, length: int) -> None:
        """Hold no more than the first `length` tokens; none where the model cannot forget the others."""
        if length >= len(self.tokens):
            return
        if self.runner.spec.can_rollback:
            self.runner.truncate(self.number, length)
            del self.tokens[length:]
        else:
            self.clear()

    def copy(self, other: _Lane, length: int) -> None:
        """Hold the first `length` tokens of another lane of the same model."""
        self.runner.fork(other.number, self.number)
        self.tokens = [*other.tokens]
        self.shorten(length)

    def clear(self) -> None:
        """Hold nothing."""
        self.runner.release(self.number)
        self.tokens.clear()


@dataclass(slots=True, eq=False)
class _Companion:
    """A second text beside a sample's: a prompt of its own, and the same output behind it."""

    sequence: Sequence
    prompt: tuple[int, ...]
    lane: _Lane
    has_begun: bool = False  # to read: what its lane holds is its own text

    def __len__(self) -> int:
        return len(self.prompt) + len(self.sequence.output)

    @property
    def lag(self) -> int:
        """Tokens that are to be fed yet."""
        return len(self) - (len(self.lane.tokens) if self.has_begun else 0)

    def part(self, end: int, drafts: tuple[int, ...] = (), *, wanted: int = 0) -> Part:
        """What feeds it up to a place, and drafts behind that."""
        start, size = len(self.lane.tokens), len(self.prompt)
        output = self.sequence.output[max(0, start - size) : max(0, end - size)]
        tokens = (*self.prompt[start:end], *output, *drafts)
        text_length = 0 if wanted else len(self)
        feed = Feed(self.lane.number, start, tokens, wanted, text_length=text_length)
        return Part(self.sequence, self.lane.runner, feed, self.lane.tokens)


class Companions:
    """Pairs each guided sample with a lane that is fed another prompt and the same output, drafts included.

    On the model itself the lane of a slot is the one `offset` places behind it; on an amateur it is the
    slot. A lane keeps what it has read, so that the next sample with the same prompt reads none of it, and
    one that others are reading is read once and copied. It is cleared when the memory is full. `budget` is
    how many tokens a model is fed in a step, where companions read.
    """

    def __init__(
        self,
        runner: ModelRunner,
        amateurs: Mapping[str, ModelRunner] | None = None,
        *,
        offset: int,
        budget: int,
    ) -> None:
        self._runner, self._offset, self._budget = runner, offset, budget
        self._runners = {**(amateurs or {}), "": runner}
        self._of: dict[int, _Companion] = {}  # by slot
        self._lanes: dict[tuple[str, int], _Lane] = {}  # by model and slot

    def check(self, request: Request) -> None:
        """Refuse what cannot be guided."""
        guidance = request.guidance
        if not 0 <= guidance.scale < inf or not 0 <= guidance.cutoff <= 1:
            raise UsageError(
                f"The guidance has scale {guidance.scale:g} and cutoff {guidance.cutoff:g}.",
                hint="A scale is at least 0 and finite, a cutoff between 0 and 1.",
            )
        if guidance.amateur not in self._runners:
            raise UsageError(
                f"The amateur {guidance.amateur!r} is not the one of this run.",
                hint="An amateur is named for the whole run: --contrast NAME.",
            )
        if guidance.is_on:
            self._check_prompt(request)

    def _check_prompt(self, request: Request) -> None:
        prompt = request.guidance.companion_prompt(request.prompt_ids)
        spec = self._runners[request.guidance.amateur].spec
        if not prompt:
            raise UsageError("The negative prompt is empty: it has no tokens.", hint="Leave it out.")
        if len(prompt) >= spec.context:
            raise UsageError(
                f"The prompt of the companion has {len(prompt)} tokens, but {spec.name} takes {spec.context} "
                "with the output.",
                hint="Shorten --negative." if not request.guidance.amateur else "",
            )
        if (most := max(prompt)) >= spec.vocab_size or min(prompt) < 0:
            raise UsageError(f"Token id {most} is outside the {spec.vocab_size} of {spec.name}.")

    def context(self, request: Request) -> int:
        """The most tokens that prompt and output may have, so that the companion's have room as well."""
        context = self._runner.spec.context
        if not request.guidance.is_on:
            return context
        prompt = request.guidance.companion_prompt(request.prompt_ids)
        spec = self._runners[request.guidance.amateur].spec
        return min(context, spec.context - len(prompt) + len(request.prompt_ids))

    def admit(self, sequence: Sequence) -> None:
        """A sample has a slot; if it is guided, it gets a companion."""
        guidance, slot = sequence.request.guidance, sequence.slot
        if not guidance.is_on:
            return
        prompt, lane = guidance.companion_prompt(sequence.prompt), self._lane(guidance.amateur, slot)
        self._of[slot] = companion = _Companion(sequence, prompt, lane)
        if not self._is_read(companion):
            self._begin(companion)

    def _lane(self, name: str, slot: int) -> _Lane:
        """The lane beside a slot; the first time it is emptied of what another engine may have left there."""
        if (name, slot) not in self._lanes:
            self._lanes[name, slot] = lane = _Lane(self._runners[name], slot if name else self._offset + slot)
            lane.clear()
        return self._lanes[name, slot]

    def release(self, slot: int) -> None:
        """The slot is free."""
        self._of.pop(slot, None)

    def trim(self) -> None:
        """The memory is full, and no slot is taken."""
        for lane in self._lanes.values():
            lane.clear()
        self._lanes.clear()
        for name, runner in self._runners.items():
            if name:
                runner.free_cache()

    def is_behind(self, sequence: Sequence) -> bool:
        """Whether the sample has to wait until its companion has read more of its prompt."""
        companion = self._of.get(sequence.slot)
        return companion is not None and companion.lag > _CATCH_UP

    def pair(self, step: Step) -> Pairing:
        """The step with what companions are fed in it."""
        return Pairing(step, self._runner, tuple(self._parts(step)))

    def _parts(self, step: Step) -> Iterator[Part]:
        """Those whose samples choose follow them; others read on while the budget lasts."""
        choosing = {sequence.slot: drafts for sequence, drafts in step.choosing}
        left = dict.fromkeys(self._runners.values(), self._budget)
        left[self._runner] -= step.plan.num_tokens
        for slot, companion in self._of.items():
            companion.lane.shorten(len(companion) - 1)  # rejected drafts
            if slot in choosing:
                self._begin(companion)
                part = companion.part(len(companion), choosing[slot], wanted=1 + len(choosing[slot]))
                left[part.runner] -= len(part.feed.tokens)
                yield part
        budgets = {runner: max(tokens, 1) for runner, tokens in left.items()}
        for slot, companion in self._of.items():
            runner = companion.lane.runner
            if slot in choosing or not budgets[runner] or companion.lag < 2:
                continue
            if companion.has_begun or not self._is_read(companion):
                self._begin(companion)
                start = len(companion.lane.tokens)
                end = min(start + budgets[runner], len(companion) - 1)
                budgets[runner] -= end - start
                if end > start:
                    yield companion.part(end)

    def _begin(self, companion: _Companion) -> None:
        """Let its lane hold what any lane of its model holds of its prompt, but for the last token."""
        if companion.has_begun:
            return
        lane, wanted = companion.lane, [*companion.prompt[:-1]]
        own = shared_length(lane.tokens, wanted)
        shared, best = max(
            ((shared_length(other.tokens, wanted), other) for other in self._others(lane)),
            key=lambda pair: pair[0],
            default=(0, lane),
        )
        if shared > own and is_worth_copying(shared, len(wanted)):
            lane.copy(best, shared)
        else:
            lane.shorten(own)
        companion.has_begun = True

    def _others(self, lane: _Lane) -> Iterator[_Lane]:
        """The lanes of the same model, if parts of them can be copied."""
        if lane.runner.spec.can_rollback:
            yield from (o for o in self._lanes.values() if o.runner is lane.runner and o is not lane)

    def _is_read(self, companion: _Companion) -> bool:
        """Whether another companion is reading the same prompt."""
        prompt, runner = companion.prompt, companion.lane.runner
        if not runner.spec.can_rollback:
            return False
        same = (
            o for o in self._of.values() if o.has_begun and o.lane.runner is runner and o.prompt == prompt
        )
        return any(other.lag > 1 for other in same)

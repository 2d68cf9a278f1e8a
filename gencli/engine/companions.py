"""Companions, the unconditional sequences of guided samples: their lanes and their feeds.

DoLa and contrastive search need no companion: they use hidden states of the same forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from gencli.core.request import Feed, Request
from gencli.engine.feeds import Step
from gencli.engine.layer_contrast import check_layers, wanted_layers
from gencli.engine.pairing import Pairing, Part
from gencli.engine.sequence import Sequence
from gencli.errors import UsageError
from gencli.models.model_runner import ModelRunner, PrefixLane, PrefixLanes

__all__ = ["Companions"]

_CATCH_UP = 64  # tokens; with a longer lag the companion prefills in chunks and its sample waits


@dataclass(slots=True, eq=False)
class _Companion:
    """The unconditional sequence of one sample: a prompt of its own, followed by the sample's output."""

    sequence: Sequence
    prompt: tuple[int, ...]
    cache: PrefixLanes
    lane: PrefixLane
    has_begun: bool = False  # the lane holds a prefix of this text

    def __len__(self) -> int:
        return len(self.prompt) + len(self.sequence.output)

    @property
    def lag(self) -> int:
        """Number of tokens that its lane does not hold yet."""
        return len(self) - (len(self.lane) if self.has_begun else 0)

    def part(self, end: int, drafts: tuple[int, ...] = (), *, num_logits: int = 0) -> Part:
        """Return the feed of its tokens up to `end`, followed by the draft tokens."""
        start, size = len(self.lane), len(self.prompt)
        output = self.sequence.output[max(0, start - size) : max(0, end - size)]
        tokens = (*self.prompt[start:end], *output, *drafts)
        text_length = 0 if num_logits else len(self)
        feed = Feed(self.lane.number, start, tokens, num_logits, text_length=text_length)
        return Part(self.sequence, self.cache.runner, feed, self.lane)


class Companions:
    """Runs a companion beside each guided sample: another prompt, the same output, the same draft tokens.

    Lane of a companion: `offset` + slot on the model itself, slot on an amateur model. A lane keeps its
    tokens after its sample has finished, as a prefix cache: equal prompts are computed once and copied.
    Out-of-memory empties the lanes. `budget`: limit of tokens per model and step while companions prefill.
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
        self._by_slot: dict[int, _Companion] = {}
        self._caches = {name: PrefixLanes(one) for name, one in self._runners.items()}
        self._has_layers = False  # whether any request so far used DoLa
        self._has_states = False  # whether any request so far was a contrastive search

    def check(self, request: Request) -> None:
        """Raise UsageError if the request's guidance or its DoLa is invalid."""
        guidance = request.guidance
        self._has_layers |= request.dola is not None
        self._has_states |= request.contrastive is not None
        if not 0 <= guidance.scale < inf or not 0 <= guidance.cutoff <= 1:
            raise UsageError(
                f"The guidance has scale {guidance.scale:g} and cutoff {guidance.cutoff:g}.",
                hint="A scale is at least 0 and finite, a cutoff between 0 and 1.",
            )
        if guidance.amateur not in self._runners:
            raise UsageError(
                f"The amateur {guidance.amateur!r} is not the one of this run.",
                hint="An amateur is named for the whole run: `contrast` = NAME.",
            )
        check_layers(request, self._runner.spec)
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
                hint="Shorten `negative`." if not request.guidance.amateur else "",
            )
        if (most := max(prompt)) >= spec.vocab_size or min(prompt) < 0:
            raise UsageError(f"Token id {most} is outside the {spec.vocab_size} of {spec.name}.")

    def context(self, request: Request) -> int:
        """Return the maximum number of prompt and output tokens in the contexts of sample and companion."""
        context = self._runner.spec.context
        if not request.guidance.is_on:
            return context
        prompt = request.guidance.companion_prompt(request.prompt_ids)
        spec = self._runners[request.guidance.amateur].spec
        return min(context, spec.context - len(prompt) + len(request.prompt_ids))

    def admit(self, sequence: Sequence) -> None:
        """Create the companion of a guided sample that has its slot."""
        guidance, slot = sequence.request.guidance, sequence.slot
        if not guidance.is_on:
            return
        cache, number = self._caches[guidance.amateur], slot if guidance.amateur else self._offset + slot
        prompt = guidance.companion_prompt(sequence.prompt)
        self._by_slot[slot] = companion = _Companion(sequence, prompt, cache, cache[number])
        if not self._is_being_read(companion):
            self._begin(companion)

    def release(self, slot: int) -> None:
        """Remove the companion of a slot; its lane keeps the tokens."""
        self._by_slot.pop(slot, None)

    def trim(self) -> None:
        """Free memory after out-of-memory. No slot is in use."""
        for cache in self._caches.values():
            cache.clear()
        for name, runner in self._runners.items():
            if name:
                runner.free_cache()

    def is_behind(self, sequence: Sequence) -> bool:
        """Whether the sample has to wait for its companion's prefill."""
        companion = self._by_slot.get(sequence.slot)
        return companion is not None and companion.lag > _CATCH_UP

    def pair(self, step: Step) -> Pairing:
        """Return the step with the feeds of its companions."""
        layers = wanted_layers(step, self._runner.spec) if self._has_layers else ()
        asked = [one.slot for one in step.sequences if one.request.contrastive] if self._has_states else ()
        parts = tuple(self._parts(step)) if self._by_slot else ()
        return Pairing(step, self._runner, parts, layers, frozenset(asked))

    def _parts(self, step: Step) -> Iterator[Part]:
        """Yield the feeds of companions: of sampled sequences first, then prefill chunks in the budget."""
        sampled = {sequence.slot: drafts for sequence, drafts in step.sampled}
        num_left = dict.fromkeys(self._runners.values(), self._budget)
        num_left[self._runner] -= step.plan.num_tokens
        for slot, companion in self._by_slot.items():
            companion.lane.truncate(len(companion) - 1)  # rejected drafts
            if slot in sampled:
                self._begin(companion)
                part = companion.part(len(companion), sampled[slot], num_logits=1 + len(sampled[slot]))
                num_left[part.runner] -= len(part.feed.tokens)
                yield part
        budgets = {runner: max(tokens, 1) for runner, tokens in num_left.items()}
        for slot, companion in self._by_slot.items():
            runner = companion.cache.runner
            if slot in sampled or not budgets[runner] or companion.lag < 2:
                continue
            if companion.has_begun or not self._is_being_read(companion):
                self._begin(companion)
                start = len(companion.lane)
                end = min(start + budgets[runner], len(companion) - 1)
                budgets[runner] -= end - start
                if end > start:
                    yield companion.part(end)

    def _begin(self, companion: _Companion) -> None:
        """Reuse the longest cached prefix of the prompt."""
        if not companion.has_begun:
            salt = companion.sequence.request.salt
            companion.cache.reuse(companion.lane, companion.prompt[:-1], salt)
            companion.has_begun = True

    def _is_being_read(self, companion: _Companion) -> bool:
        """Whether another companion is prefilling the same prompt."""
        prompt, runner = companion.prompt, companion.cache.runner
        if not runner.spec.can_rollback:
            return False
        begun = (
            other for other in self._by_slot.values() if other.has_begun and other.cache.runner is runner
        )
        salt = companion.sequence.request.salt
        return any(
            other.prompt == prompt and other.lag > 1 and other.sequence.request.salt == salt
            for other in begun
        )

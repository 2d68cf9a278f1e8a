"""Guidance: companions, which are the unconditional sequences of guided samples, and the layers that DoLa
contrasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from gencli.core.request import EarlyLayers, Feed, LayerContrast, Request, StepPlan
from gencli.engine.sequence import Sequence
from gencli.engine.step import Step, StepHook
from gencli.errors import UsageError
from gencli.models.model_runner import EarlyLogits, ModelRunner, ModelSpec, PrefixLane, PrefixLanes, as_wide
from processors.graphs import upload
from processors.sampler import contrast_layers, fold

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
        return len(self) - (len(self.lane) if self.has_begun else 0)

    def part(self, end: int, drafts: tuple[int, ...] = (), *, num_logits: int = 0) -> Feed:
        """Return the feed of its tokens up to `end`, followed by the draft tokens: of a chain or a tree."""
        start, size = len(self.lane), len(self.prompt)
        output = self.sequence.output[max(0, start - size) : max(0, end - size)]
        tokens = (*self.prompt[start:end], *output, *drafts)
        text_length = 0 if num_logits else len(self)
        return Feed(self.lane.number, start, tokens, num_logits, text_length=text_length)


class Companions(StepHook):
    """Runs a companion beside each guided sample: another prompt, the same output, the same draft tokens.
    Contrasts layers for samples with DoLa.

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
        super().__init__()
        self._runner, self._offset, self._budget = runner, offset, budget
        self._runners = {**(amateurs or {}), "": runner}
        self._by_slot: dict[int, _Companion] = {}
        self._caches = {name: PrefixLanes(runner) for name, runner in self._runners.items()}
        self._feeds: tuple[tuple[_Companion, Feed], ...] = ()  # of this step

    def check(self, request: Request) -> None:
        """Raise UsageError if the request's guidance or its DoLa is invalid."""
        guidance = request.guidance
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
        if not guidance.is_on:
            return
        prompt, spec = guidance.companion_prompt(request.prompt_ids), self._runners[guidance.amateur].spec
        if not prompt:
            raise UsageError("The negative prompt is empty: it has no tokens.", hint="Leave it out.")
        if len(prompt) >= spec.context:
            raise UsageError(
                f"The prompt of the companion has {len(prompt)} tokens, but {spec.name} takes {spec.context} "
                "with the output.",
                hint="Shorten `negative`." if not guidance.amateur else "",
            )
        if (largest := max(prompt)) >= spec.vocab_size or min(prompt) < 0:
            raise UsageError(f"Token id {largest} is outside the {spec.vocab_size} of {spec.name}.")

    def context(self, request: Request) -> int:
        """Return the maximum number of prompt and output tokens in the contexts of sample and companion."""
        context = self._runner.spec.context
        if not request.guidance.is_on:
            return context
        prompt = request.guidance.companion_prompt(request.prompt_ids)
        spec = self._runners[request.guidance.amateur].spec
        return min(context, spec.context - len(prompt) + len(request.prompt_ids))

    def wants(self, sequence: Sequence) -> bool:
        return sequence.request.guidance.is_on or sequence.request.dola is not None

    def admit(self, sequence: Sequence) -> None:
        """Create the companion of a guided sample."""
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
        for cache in self._caches.values():
            cache.clear()
        for name, runner in self._runners.items():
            if name:
                runner.free_cache()

    def behind(self) -> Iterable[Sequence]:
        return [c.sequence for c in self._by_slot.values() if c.lag > _CATCH_UP]

    def before(self, step: Step) -> None:
        """Add the feeds of companions on the model itself, which share its forward pass."""
        self._feeds = tuple(self._parts(step)) if self._by_slot else ()
        step.companions = tuple(feed for other, feed in self._feeds if other.cache.runner is self._runner)
        step.is_busy = bool(self._feeds)
        step.layers = wanted_layers(step, self._runner.spec)

    def on_logits(self, step: Step) -> None:
        """Run companions on amateur models; combine the logits of samples and companions, or of layers."""
        logits = dict[int, Tensor]()
        for runner in dict.fromkeys((self._runner, *(other.cache.runner for other, _ in self._feeds))):
            parts = [(other, feed) for other, feed in self._feeds if other.cache.runner is runner]
            by_part: Iterable[Tensor] = step.companion_logits
            if runner is not self._runner:
                rows = runner.forward(StepPlan(tuple(feed for _, feed in parts)))
                by_part = torch.split(rows, [feed.num_logits for _, feed in parts])
            logits |= {other.sequence.slot: rows for (other, _), rows in zip(parts, by_part, strict=True)}
        for companion, feed in self._feeds:
            companion.lane.extend(feed.tokens)
        if logits:
            step.logits = folded(step, logits)
        if step.layers and step.inner is not None:
            step.logits = contrasted(step, step.logits, step.inner.early, self._runner.spec)

    def on_tokens(self, step: Step) -> None:
        """Keep the path that was walked down a tree."""
        for companion, feed in self._feeds if step.paths else ():
            if feed.parents:
                root = feed.end - len(feed.parents) - 1
                companion.lane.compact(root, step.paths[companion.sequence.slot])

    def _parts(self, step: Step) -> Iterator[tuple[_Companion, Feed]]:
        """Yield the feeds of companions: of sampled sequences first, then prefill chunks in the budget."""
        sampled = {sequence.slot: drafts for sequence, drafts in step.sampled}
        num_left = dict.fromkeys(self._runners.values(), self._budget)
        num_left[self._runner] -= step.plan.num_tokens
        for slot, companion in self._by_slot.items():
            companion.lane.truncate(len(companion) - 1)  # rejected drafts
            if slot in sampled:
                self._begin(companion)
                feed = companion.part(len(companion), sampled[slot], num_logits=1 + len(sampled[slot]))
                if slot in step.trees:
                    feed = feed._replace(parents=step.trees[slot].parents)
                num_left[companion.cache.runner] -= len(feed.tokens)
                yield companion, feed
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
                    yield companion, companion.part(end)

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
        salt = companion.sequence.request.salt
        return any(
            other.has_begun and other.cache.runner is runner and other.prompt == prompt and other.lag > 1
            for other in self._by_slot.values()
            if other.sequence.request.salt == salt
        )


def folded(step: Step, companions: dict[int, Tensor]) -> Tensor:
    """Return logits [R, V] with guidance in the rows of guided samples; those of the step without any.

    `companions`: by slot the companion's logits [K + 1, W] for K drafts.
    """
    logits, row = step.logits, 0
    rows, others = list[int](), list[Tensor]()
    scales, cutoffs = list[float](), list[float]()
    for sequence, drafts in step.sampled:
        count, other = 1 + len(drafts), companions.get(sequence.slot)
        if other is not None:
            guidance = sequence.request.guidance
            rows += range(row, row + count)
            others.append(as_wide(other, logits.shape[1], logits.device))
            scales += [guidance.scale] * count
            cutoffs += [guidance.cutoff] * count
        row += count
    if not rows:
        return logits
    levels = upload([scales, cutoffs], logits.device)
    if len(rows) == row:
        return fold(logits, torch.cat(others), *levels)
    at = upload(rows, logits.device)
    mixed = fold(logits.index_select(0, at), torch.cat(others), *levels)
    return logits.to(torch.float32, copy=True).index_copy_(0, at, mixed)


_DEEP = 40  # layers; in a deeper model `low` and `high` are among the first and last 20


def check_layers(request: Request, spec: ModelSpec) -> None:
    """Raise UsageError if the model cannot contrast the requested layers."""
    dola = request.dola
    if dola is None:
        return
    if not spec.num_layers:
        raise UsageError(
            f"{spec.name} gives no logits of its layers, which `dola` contrasts.",
            hint="It needs gencli's own decoder, or lanes that share a cache, and no long rope.",
        )
    if request.guidance.is_on:
        raise UsageError(
            "A request has guidance and `dola`, of which a text can have one.", hint="Leave one out."
        )
    if not 0 <= dola.cutoff <= 1:
        raise UsageError(f"The cutoff of `dola` is {dola.cutoff:g}.", hint="It is between 0 and 1.")
    layers = candidates(dola.layers, spec)
    if not layers or not all(0 <= layer < spec.num_layers for layer in layers):
        raise UsageError(
            f"`dola` names the layers {layers}; {spec.name} can contrast 0 to {spec.num_layers - 1}.",
            hint="low, high, or numbers such as 2,4,6; 0 is the embedding.",
        )


def candidates(layers: EarlyLayers, spec: ModelSpec) -> tuple[int, ...]:
    """Return the layers that `low`, `high` or a list of numbers means for the model.

    `low` and `high`: every second layer of the lower and the upper half. With tied embeddings `low` begins at
    layer 2, because layer 0 would predict the input token.
    """
    if not isinstance(layers, str):
        return tuple(sorted(set(layers)))
    count = spec.num_layers
    if layers == "high":
        return tuple(range(count // 2 if count <= _DEEP else count - _DEEP // 2, count, 2))
    first = min(2, count - 1) if spec.is_tied else 0
    return tuple(range(first, count // 2 if count <= _DEEP else _DEEP // 2, 2)) or (first,)


def wanted_layers(step: Step, spec: ModelSpec) -> tuple[int, ...]:
    """Return the layers whose logits the sampled sequences of a step need."""
    asked = (sequence.request.dola for sequence, _ in step.sampled)
    return tuple(sorted({layer for dola in asked if dola for layer in candidates(dola.layers, spec)}))


def contrasted(step: Step, logits: Tensor, early: EarlyLogits, spec: ModelSpec) -> Tensor:
    """Return logits [R, V] of the sampled rows, with DoLa applied to the rows that request it.

    `early` has rows for all wanted positions of the step, including scored prompt positions.
    """
    counts = {sequence.slot: 1 + len(drafts) for sequence, drafts in step.sampled}
    targets, sources, contrasts = list[int](), list[int](), list[LayerContrast]()
    row, position = 0, 0  # of the sequence among the sampled rows, and among the wanted positions
    for sequence, feed in zip(step.sequences, step.plan.feeds, strict=True):
        count, first = counts.get(sequence.slot, 0), position + feed.num_scored
        if sequence.request.dola is not None:
            targets += range(row, row + count)
            sources += range(first, first + count)
            contrasts += [sequence.request.dola] * count
        row, position = row + count, position + feed.num_logits
    sets = [candidates(dola.layers, spec) for dola in contrasts]
    cutoffs = upload([dola.cutoff for dola in contrasts], logits.device)
    source, target = upload(sources, logits.device), upload(targets, logits.device)

    def layers() -> Iterator[tuple[Tensor, Tensor]]:
        for layer in wanted_layers(step, spec):
            rows = early(layer).index_select(0, source)
            yield rows.to(logits.device), upload([layer in wanted for wanted in sets], logits.device)

    changed = contrast_layers(logits.index_select(0, target), layers(), cutoffs)
    if len(targets) == len(logits):
        return changed
    return logits.to(torch.float32, copy=True).index_copy_(0, target, changed)

"""A step with the feeds of its companions: one forward pass per model, and the guided logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from gencli.core.request import Feed, StepPlan
from gencli.engine.feeds import Step
from gencli.engine.layer_contrast import contrasted
from gencli.engine.sequence import Sequence
from gencli.models.model_runner import Inner, LayeredRunner, ModelRunner, PrefixLane, as_wide
from processors.guidance import fold
from processors.upload import upload

__all__ = ["Others", "Pairing", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """The feed of a sample's companion, its lane, and the runner of its model."""

    sequence: Sequence
    runner: ModelRunner
    feed: Feed
    lane: PrefixLane


@dataclass(frozen=True, slots=True, eq=False)
class Others:
    """Results of a step beside the samples' logits.

    `companions`: by slot the companion's logits [K + 1, W] for K drafts. `inner`: early logits and states.
    """

    companions: dict[int, Tensor]
    inner: Inner | None = None


_NONE = Others({})


@dataclass(frozen=True, slots=True)
class Pairing:
    """The feeds of a step and of its companions. Feeds for the same model share one forward pass.

    `layers`: layers of `runner` whose logits are needed too. `lanes`: lanes whose last hidden states are
    needed.
    """

    step: Step
    runner: ModelRunner
    parts: tuple[Part, ...]
    layers: tuple[int, ...] = ()
    lanes: frozenset[int] = frozenset()

    @property
    def has_feeds(self) -> bool:
        """Whether the step has any feed."""
        return bool(self.step.plan.feeds or self.parts)

    def forward(self) -> tuple[Tensor, Others]:
        """Run the models; return the samples' logits [R, V] in feed order, and the other results."""
        if self.parts or self.layers or self.lanes:
            own, others = self._run()
        else:
            own, others = self.runner.forward(self.step.plan), _NONE
        for sequence, feed in zip(self.step.sequences, self.step.plan.feeds, strict=True):
            sequence.computed(len(feed.tokens))
        return own, others

    def _run(self) -> tuple[Tensor, Others]:
        own, companions = torch.empty(0, self.runner.spec.vocab_size), dict[int, Tensor]()
        inner: Inner | None = None
        for runner in dict.fromkeys((self.runner, *(part.runner for part in self.parts))):
            feeds = self.step.plan.feeds if runner is self.runner else ()
            parts = [part for part in self.parts if part.runner is runner]
            if not feeds and not parts:
                continue
            plan = StepPlan((*feeds, *(part.feed for part in parts)))
            counts = [self.step.plan.num_rows if feeds else 0, *(part.feed.num_logits for part in parts)]
            if runner is self.runner and (self.layers or self.lanes):
                logits, inner = cast(LayeredRunner, runner).forward_layers(plan, self.layers, self.lanes)
            else:
                logits = runner.forward(plan)
            first, *rest = torch.split(logits, counts)
            own = first if feeds else own
            companions |= {part.sequence.slot: rows for part, rows in zip(parts, rest, strict=True)}
        for part in self.parts:
            part.lane.extend(part.feed.tokens)
        return own, Others(companions, inner)

    def guided(self, own: Tensor, others: Others) -> Tensor:
        """Return logits [R, V] with guidance or DoLa in rows that request it; `own` itself without any."""
        if others.companions:
            own = self._folded(own, others.companions)
        if self.layers and others.inner is not None:
            own = contrasted(self.step, own, others.inner.early, self.runner.spec)
        return own

    def _folded(self, own: Tensor, companions: dict[int, Tensor]) -> Tensor:
        rows, others = list[int](), list[Tensor]()
        scales, cutoffs = list[float](), list[float]()
        row = 0
        for sequence, drafts in self.step.sampled:
            count, other = 1 + len(drafts), companions.get(sequence.slot)
            if other is not None:
                guidance = sequence.request.guidance
                rows += range(row, row + count)
                others.append(as_wide(other, own.shape[1], own.device))
                scales += [guidance.scale] * count
                cutoffs += [guidance.cutoff] * count
            row += count
        if not rows:
            return own
        levels = upload([scales, cutoffs], own.device)
        if len(rows) == row:
            return fold(own, torch.cat(others), *levels)
        at = upload(rows, own.device)
        folded = fold(own.index_select(0, at), torch.cat(others), *levels)
        return own.to(torch.float32, copy=True).index_copy_(0, at, folded)

"""A step with its companions: one forward pass, then guidance applied to the logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gencli.core.step import Feed, StepPlan
from gencli.engine.scheduler import Step
from gencli.engine.sequence import Sequence
from gencli.models.base import ModelRunner
from gencli.models.lane_cache import CachedLane
from gencli.models.width import as_wide
from processors.guidance import fold
from processors.upload import upload

__all__ = ["Pairing", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """The feed of a sample's companion to its lane, for `runner`."""

    sequence: Sequence
    runner: ModelRunner
    feed: Feed
    lane: CachedLane


@dataclass(frozen=True, slots=True)
class Pairing:
    """The feeds of a step and of its companions. Feeds for the same model share one forward pass."""

    step: Step
    runner: ModelRunner
    parts: tuple[Part, ...]

    @property
    def has_feeds(self) -> bool:
        """Whether there is anything to feed."""
        return bool(self.step.plan.feeds or self.parts)

    def forward(self) -> tuple[Tensor, dict[int, Tensor]]:
        """Run the models: the samples' logits [R, V] in feed order, the companions' [K + 1, W] by slot."""
        own, companions = torch.empty(0, self.runner.spec.vocab_size), dict[int, Tensor]()
        for runner in dict.fromkeys((self.runner, *(part.runner for part in self.parts))):
            feeds = self.step.plan.feeds if runner is self.runner else ()
            parts = [part for part in self.parts if part.runner is runner]
            if not feeds and not parts:
                continue
            plan = StepPlan((*feeds, *(part.feed for part in parts)))
            counts = [self.step.plan.num_rows if feeds else 0, *(part.feed.num_logits for part in parts)]
            first, *rest = torch.split(runner.forward(plan), counts)
            own = first if feeds else own
            companions |= {part.sequence.slot: rows for part, rows in zip(parts, rest, strict=True)}
        for part in self.parts:
            part.lane.extend(part.feed.tokens)
        for sequence, feed in zip(self.step.sequences, self.step.plan.feeds, strict=True):
            sequence.computed(len(feed.tokens))
        return own, companions

    def guided(self, own: Tensor, companions: dict[int, Tensor]) -> Tensor:
        """Apply guidance to the rows of guided samples: [R, V]. Returns `own` itself if there are none."""
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

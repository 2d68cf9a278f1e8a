"""One choice: the kernels in order, as a function of tensors alone."""

from __future__ import annotations

from torch import Tensor

from processors.kernels.choice.draws import draw_ids, survey
from processors.kernels.choice.facts import block_facts
from processors.kernels.choice.rows import row_facts

__all__ = ["choose"]


def choose(
    logits: Tensor, controls: Tensor, seeds: Tensor, positions: Tensor, *, greedy: bool = False
) -> Tensor:
    """Return a token [R] int64 for each row of logits [R, V], negative ones as those of Sampler.

    controls [R, C]: see `Control`. `greedy`: all rows are. The shapes depend on those of the arguments alone,
    so that a CUDA graph can record the launches.
    """
    facts = block_facts(logits, controls)
    levels, marks, _ = row_facts(facts, controls, False)
    ids = None if greedy else survey(logits, controls, levels, marks, facts)
    tokens: Tensor = draw_ids(logits, controls, levels, marks, facts, ids, seeds, positions)
    return tokens

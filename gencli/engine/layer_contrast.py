"""DoLa in the engine: which layers a request contrasts, and for which rows of a step.

Chuang et al. 2024, DoLa: Decoding by Contrasting Layers Improves Factuality in Large Language Models, arXiv
2309.03883. The formula is in processors.guidance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from gencli.core.request import EarlyLayers, LayerContrast, Request
from gencli.engine.feeds import Step
from gencli.errors import UsageError
from gencli.models.model_runner import EarlyLogits, ModelSpec
from processors.guidance import contrast_layers
from processors.upload import upload

__all__ = ["candidates", "check_layers", "contrasted", "wanted_layers"]

_DEEP = 40  # layers; in a deeper model `low` and `high` are among the first and last 20


def check_layers(request: Request, spec: ModelSpec) -> None:
    """Raise UsageError if the model cannot contrast the requested layers."""
    dola = request.dola
    if dola is None:
        return
    if not spec.num_layers:
        raise UsageError(
            f"{spec.name} gives no logits of its layers, which `dola` contrasts.",
            hint="It needs gencli's own decoder (`backend` = native), without a long rope.",
        )
    if request.guidance.is_on:
        raise UsageError(
            "A request has guidance and `dola`, of which a text can have one.", hint="Leave one out."
        )
    if not 0 <= dola.cutoff <= 1:
        raise UsageError(f"The cutoff of `dola` is {dola.cutoff:g}.", hint="It is between 0 and 1.")
    found = candidates(dola.layers, spec)
    if not found or not all(0 <= layer < spec.num_layers for layer in found):
        raise UsageError(
            f"`dola` names the layers {found}; {spec.name} can contrast 0 to {spec.num_layers - 1}.",
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
    asked = list(_rows(step))
    at, there = ([row[place] for row in asked] for place in (0, 1))
    sets = [candidates(dola.layers, spec) for _, _, dola in asked]
    cutoffs = upload([dola.cutoff for _, _, dola in asked], logits.device)
    source, target = upload(there, logits.device), upload(at, logits.device)

    def layers() -> Iterator[tuple[Tensor, Tensor]]:
        for layer in wanted_layers(step, spec):
            rows = early(layer).index_select(0, source)
            yield rows.to(logits.device), upload([layer in own for own in sets], logits.device)

    found = contrast_layers(logits.index_select(0, target), layers(), cutoffs)
    if len(at) == len(logits):
        return found
    return logits.to(torch.float32, copy=True).index_copy_(0, target, found)


def _rows(step: Step) -> Iterable[tuple[int, int, LayerContrast]]:
    """Yield for each row with DoLa: its index among sampled rows and among wanted positions, and contrast."""
    sampled = {sequence.slot: 1 + len(drafts) for sequence, drafts in step.sampled}
    row, place = 0, 0
    for sequence, feed in zip(step.sequences, step.plan.feeds, strict=True):
        count = sampled.get(sequence.slot, 0)
        first = place + feed.num_scored
        if sequence.request.dola is not None:
            yield from ((row + i, first + i, sequence.request.dola) for i in range(count))
        row, place = row + count, place + feed.num_logits

"""Given outputs: requests whose tokens are known, for their log-probabilities under the chain.

The next given ids are fed as draft tokens that are always accepted. So one forward reads many positions, and
at each of them guidance and stages see what they would see if the ids before it had been drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import replace

import torch
from torch import Tensor

from gencli.core.events import TokenLogprobs
from gencli.core.request import Request
from gencli.engine.scheduler import SampledSequences
from gencli.engine.sequence import Sequence, Taken
from gencli.engine.step_result import StepResult
from gencli.errors import UsageError
from gencli.models.base import ModelSpec
from processors.base import Document
from processors.pipeline import Pipeline
from processors.upload import upload

__all__ = ["accept_given", "check_given", "given_drafts", "given_tokens", "take_given"]

_ENDED: tuple[Document, ...] = ("broken", "over")  # no token may follow


def check_given(request: Request, context: int) -> None:
    """Raise UsageError if the given output cannot be read. `context`: most tokens, prompt and output."""
    if not request.given:
        raise UsageError("A given output has no tokens.")
    if request.n > 1 or request.beams or request.best_of or request.session or request.finish_open:
        raise UsageError("A given output is one sample: without `n`, `beams`, `best_of`, `finish_open`.")
    if request.contrastive:
        raise UsageError("A given output is not chosen: leave `contrastive_alpha` out.")
    size = len(request.prompt_ids) + len(request.given)
    if size > context:
        raise UsageError(f"Prompt and given output have {size} tokens, but {context} fit the context.")
    if len(request.given) > request.limits.max_tokens:
        raise UsageError(
            f"There are {len(request.given)} tokens to score, but `max_tokens` is "
            f"{request.limits.max_tokens}: no text can have them."
        )


def given_drafts(
    sequences: Items[Sequence], pipeline: Pipeline, spec: ModelSpec, rows: int
) -> dict[int, tuple[int, ...]]:
    """Return the given ids that are fed as drafts, by slot; `rows` logit rows are shared by the sequences.

    The id behind them is the token that the step chooses. A chain with a sequential stage has one a step.
    """
    found = dict[int, tuple[int, ...]]()
    share = rows // max(1, len(sequences))
    for sequence in sequences:
        given, done = sequence.request.given or (), len(sequence.output)
        most = min(sequence.room, spec.limit(len(sequence)) - len(sequence), share) - 1
        if most > 0 and not pipeline.sequential(sequence.slot):
            found[sequence.slot] = given[done : done + most]
    return found


def given_tokens(sampled: SampledSequences, device: torch.device) -> Tensor | None:
    """Return the given tokens of the step [Q, K + 1] int64: drafts and the one behind them, padded with -1.

    None if no sequence of the step has any.
    """
    if not any(sequence.request.given for sequence, _ in sampled):
        return None
    runs = list[tuple[int, ...]]()
    for sequence, drafts in sampled:
        given, done = sequence.request.given, len(sequence.output)
        runs.append(() if given is None else given[done : done + len(drafts) + 1])
    width = 1 + max(len(drafts) for _, drafts in sampled)
    return upload([[*run, *[-1] * (width - len(run))] for run in runs], device, torch.int64)


def accept_given(
    given: Tensor, draw: Callable[[], tuple[Tensor, Tensor]], sampled: SampledSequences
) -> tuple[Tensor, Tensor]:
    """Return tokens [Q, K + 1] and counts [Q]: those of `given` [Q, K + 1], and drawn ones without these."""
    is_given = given >= 0
    if all(sequence.request.given for sequence, _ in sampled):
        return given, is_given.sum(dim=1)
    tokens, counts = draw()
    return torch.where(is_given, given, tokens), torch.where(is_given[:, 0], is_given.sum(dim=1), counts)


def take_given(
    result: StepResult, index: int, pipeline: Pipeline, now: float
) -> tuple[Taken, Exception | None]:
    """Append the given tokens of a step to their sequence; return them, and the error, if any.

    Behind the end of a document, or a token that the grammar forbids, no token is possible.
    """
    sequence, tokens, entries = result.sampled[index][0], result.tokens[index], result.entries.get(index, ())
    before = sequence.document
    followed = pipeline.preview(sequence.slot, tokens) if before not in _ENDED else ()
    taken = sequence.take_given(tokens, followed, now=now)
    for offset, entry in enumerate(entries):
        if math.isnan(entry.chosen.processed):
            row = result.first_rows[index] + offset
            return taken, pipeline.explain_failure(result.logits, result.rows, row)
        sequence.note([_impossible(entry) if before in _ENDED else entry])
        before = followed[offset].document if offset < len(followed) else before
    return taken, None


def _impossible(entry: TokenLogprobs) -> TokenLogprobs:
    ids = (entry.chosen, *entry.top)
    chosen, *top = (replace(one, processed=-math.inf, banned_by=one.banned_by or "grammar") for one in ids)
    return TokenLogprobs(chosen, entry.rank, chosen.id + 1, tuple(top))

"""Known tokens: a given output, for its log-probabilities under the chain, or the prefix of an output.

The next known ids are fed as draft tokens that are always accepted. One forward pass thus reads many
positions, and at each of them guidance and stages see the same as if the ids before it had been drawn.
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
from gencli.engine.feeds import SampledSequences
from gencli.engine.reports import Taken
from gencli.engine.sequence import Sequence
from gencli.engine.step_result import StepResult
from gencli.errors import GenerationError, UsageError
from gencli.models.model_runner import ModelSpec
from processors.base import Document
from processors.pipeline import Pipeline
from processors.upload import upload

__all__ = [
    "accept_given",
    "check_given",
    "check_prefix",
    "given_drafts",
    "given_tokens",
    "prefix_error",
    "take_given",
]

_ENDED: tuple[Document, ...] = ("broken", "over")  # states of a document after which no token may follow


def check_given(request: Request, context: int) -> None:
    """Raise UsageError if the given output cannot be scored. `context`: most tokens in total."""
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


def check_prefix(request: Request, context: int) -> None:
    """Raise UsageError if the output cannot begin with the prefix. `context`: most tokens in total."""
    size, most = len(request.prefix), min(request.limits.max_tokens, context - len(request.prompt_ids))
    if request.given is not None or request.beams is not None or request.contrastive is not None:
        raise UsageError(
            "A prefix of the output goes with no `beams`, no `contrastive_alpha`, and with no given output."
        )
    if size > most:
        raise UsageError(
            f"The prefix of the output has {size} tokens, but {most} fit `max_tokens` and context."
        )


def prefix_error(sequence: Sequence, error: Exception | None) -> GenerationError | None:
    """Return why the output cannot begin with its prefix, or None. `error`: error of the last token."""
    count, size = len(sequence.output), len(sequence.request.prefix)
    if error is not None:
        return GenerationError(
            f"Token {count} of the {size} that the output begins with is impossible: {error}"
        )
    if sequence.finish is not None and sequence.known:
        reason = sequence.finish.reason
        return GenerationError(
            f"The output ends behind {count} of the {size} tokens that it begins with: {reason}."
        )
    return None


def given_drafts(
    sequences: Items[Sequence], pipeline: Pipeline, spec: ModelSpec, rows: int
) -> dict[int, tuple[int, ...]]:
    """Return the known ids to feed as drafts, by slot; the sequences share `rows` logit rows.

    The known id after the drafts is the token that the step chooses. A chain with a sequential stage gets no
    drafts: one id a step.
    """
    found = dict[int, tuple[int, ...]]()
    share = rows // max(1, len(sequences))
    for sequence in sequences:
        known = sequence.known
        most = min(len(known), sequence.room, spec.limit(len(sequence)) - len(sequence), share) - 1
        if most > 0 and not pipeline.sequential(sequence.slot):
            found[sequence.slot] = known[:most]
    return found


def given_tokens(sampled: SampledSequences, device: torch.device) -> Tensor | None:
    """Return the known tokens of the step [Q, K + 1] int64: drafts and the token after them, padded with -1.

    None if no sequence of the step has any.
    """
    runs = [sequence.known[: len(drafts) + 1] for sequence, drafts in sampled]
    if not any(runs):
        return None
    width = 1 + max(len(drafts) for _, drafts in sampled)
    return upload([[*run, *[-1] * (width - len(run))] for run in runs], device, torch.int64)


def accept_given(
    given: Tensor, draw: Callable[[], tuple[Tensor, Tensor]], sampled: SampledSequences
) -> tuple[Tensor, Tensor]:
    """Return tokens [Q, K + 1] and counts [Q]: from `given` [Q, K + 1] where known, else from `draw()`."""
    is_given = given >= 0
    if all(sequence.known for sequence, _ in sampled):
        return given, is_given.sum(dim=1)
    tokens, counts = draw()
    return torch.where(is_given, given, tokens), torch.where(is_given[:, 0], is_given.sum(dim=1), counts)


def take_given(
    result: StepResult, index: int, pipeline: Pipeline, now: float
) -> tuple[Taken, Exception | None]:
    """Append the given tokens of a step to their sequence; return the appended ones and the error, if any.

    It is an error if tokens follow the end of a document or a token that the grammar forbids.
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

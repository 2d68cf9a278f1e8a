"""Known tokens: a given output, whose log-probabilities are asked for, and the prefix of an output."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor

from gencli.core.events import TokenLogprobs
from gencli.core.request import Request
from gencli.engine.sequence import SampledSequences, Sequence, Taken
from gencli.engine.step import Append, Draw, Step, StepHook
from gencli.errors import GenerationError, UsageError
from gencli.models.model_runner import ModelSpec
from processors.base import Document
from processors.graphs import upload
from processors.pipeline import Pipeline

_ENDED: tuple[Document, ...] = ("broken", "over")  # states of a document after which no token may follow


class KnownTokens(StepHook):
    """Feeds known tokens as drafts, and takes them whatever the chain would choose.

    `score_rows`: limit of prompt positions scored in a step; the logits of a step are held twice, raw and
    processed.
    """

    def __init__(self, pipeline: Pipeline, spec: ModelSpec, *, score_rows: int) -> None:
        super().__init__()
        self._pipeline, self._spec, self._num_rows = pipeline, spec, score_rows // 2
        self._prefixed: list[int] = []  # sampled sequences of this step whose tokens belong to their prefix

    def wants(self, sequence: Sequence) -> bool:
        return sequence.request.given is not None or bool(sequence.request.prefix)

    def propose(self, sequences: list[Sequence]) -> dict[int, tuple[int, ...]]:
        """Return the known ids to feed as drafts, by slot.

        The known id after the drafts is the token that the step chooses. A chain with a sequential stage gets
        no drafts: one id a step.
        """
        drafts = dict[int, tuple[int, ...]]()
        sequences = [sequence for sequence in sequences if sequence.known]
        share = self._num_rows // max(1, len(sequences))
        for sequence in sequences:
            ids, size = sequence.known, len(sequence)
            count = min(len(ids), sequence.room, self._spec.limit(size) - size, share) - 1
            if count > 0 and not self._pipeline.sequential(sequence.slot):
                drafts[sequence.slot] = ids[:count]
        return drafts

    def before(self, step: Step) -> None:
        runs = [sequence.known[: len(drafts) + 1] for sequence, drafts in step.sampled]
        if any(runs):
            width = 1 + max(len(drafts) for _, drafts in step.sampled)
            table = [[*run, *[-1] * (width - len(run))] for run in runs]
            step.known = upload(table, self._pipeline.env.device, torch.int64)
            step.force = partial(_forced, step.known, step.sampled)

    def take(self, step: Step, append: Append) -> None:
        sequences = [sequence for sequence, _ in step.sampled]
        self._prefixed = [index for index, sequence in enumerate(sequences) if sequence.is_in_prefix]
        for index, sequence in enumerate(sequences):
            if sequence.request.given is not None:
                step.taken[index] = self._take_given(step, index)

    def on_taken(self, step: Step) -> None:
        for index in self._prefixed:
            taken, error = cast(tuple[Taken, Exception | None], step.taken[index])
            sequence, _ = step.sampled[index]
            count, size, fault = len(sequence.output), len(sequence.request.prefix), ""
            if error is not None:
                fault = f"Token {count} of the {size} that the output begins with is impossible: {error}"
            elif sequence.finish is not None and sequence.known:
                reason = sequence.finish.reason
                fault = f"The output ends behind {count} of the {size} tokens that it begins with: {reason}."
            step.taken[index] = taken, GenerationError(fault) if fault else None

    def _take_given(self, step: Step, index: int) -> tuple[Taken, Exception | None]:
        """Append the given tokens of a step to their sequence.

        It is an error if tokens follow the end of a document or a token that the grammar forbids.
        """
        sequence, tokens, entries = step.sampled[index][0], step.ids[index], step.entries.pop(index, ())
        before = sequence.document
        followed = self._pipeline.preview(sequence.slot, tokens) if before not in _ENDED else ()
        taken = sequence.take_given(tokens, followed, now=step.now)
        for offset, entry in enumerate(entries):
            if math.isnan(entry.chosen.processed):
                row = step.first_rows[index] + offset
                return taken, self._pipeline.explain_failure(step.logits, step.rows, row)
            sequence.note([_impossible(entry) if before in _ENDED else entry])
            before = followed[offset].document if offset < len(followed) else before
        return taken, None


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
    size, limit = len(request.prefix), min(request.limits.max_tokens, context - len(request.prompt_ids))
    if request.given is not None or request.beams is not None or request.contrastive is not None:
        raise UsageError(
            "A prefix of the output goes with no `beams`, no `contrastive_alpha`, and with no given output."
        )
    if size > limit:
        raise UsageError(
            f"The prefix of the output has {size} tokens, but {limit} fit `max_tokens` and context."
        )


def _forced(ids: Tensor, sampled: SampledSequences, draw: Draw) -> tuple[Tensor, Tensor]:
    """Return tokens [Q, K + 1] and counts [Q]: the known `ids` [Q, K + 1] where known, else a `draw`."""
    is_known = ids >= 0
    if all(sequence.known for sequence, _ in sampled):
        return ids, is_known.sum(dim=1)
    tokens, counts = draw()
    return torch.where(is_known, ids, tokens), torch.where(is_known[:, 0], is_known.sum(dim=1), counts)


def _impossible(entry: TokenLogprobs) -> TokenLogprobs:
    ids = (entry.chosen, *entry.top)
    chosen, *top = (replace(i, processed=-math.inf, banned_by=i.banned_by or "grammar") for i in ids)
    return TokenLogprobs(chosen, entry.rank, chosen.id + 1, tuple(top))

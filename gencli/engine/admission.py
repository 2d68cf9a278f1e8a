"""Checks of a request, and values that parts of the engine derive from it."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import cast

from gencli.config.options.drafts import NO_DRAFTER
from gencli.core.request import Drafting, Request
from gencli.engine.rewind import can_rewind
from gencli.errors import UsageError
from gencli.models.model_runner import ModelSpec
from gencli.text.text_stream import StopRules, TextStream
from gencli.text.tokenizer import Tokenizer
from processors.base import Admission
from processors.catalog import IgnoreEosParams, MinTokensParams
from processors.order import check_together
from processors.registry import Registry

__all__ = ["admission", "check_request", "effective", "text_stream"]


def effective(request: Request, *, known: int, width: int, registry: Registry) -> Request:
    """Return the request as it runs: without inactive stages, greedy resolved, unknown ids masked.

    Beam search disables draw and drafts; contrastive search and a given output disable drafts. `known`:
    number of ids of the tokenizer; larger ids are masked. `width`: number of logits per row. Raises
    ChainError for stages that contradict each other.
    """
    if request.given is not None:
        request = replace(request, jump="off", drafting=Drafting(NO_DRAFTER))
    if request.contrastive is not None:
        request = replace(request, jump="off", drafting=Drafting(NO_DRAFTER))
    if request.beams is not None:
        request = replace(request, draw="greedy", jump="off", drafting=Drafting(NO_DRAFTER))
    chain, draw = request.chain.resolved(request.draw, registry)
    check_together(chain, registry)
    chain = chain.with_stage("tail", registry, size=known) if known < width else chain
    return replace(request, draw=draw, chain=chain)


def admission(request: Request, context: int) -> Admission:
    """Return the request's data for the stages. `context`: maximum number of prompt and output tokens."""
    size = len(request.prompt_ids)
    most = max(0, min(request.limits.max_tokens, context - size))
    return Admission(request.prompt_ids, request.stops.ids, most, can_rewind(request))


def _stop_rules(request: Request, eos_ids: tuple[int, ...]) -> StopRules:
    """The stop rules of the request's texts."""
    at_least = cast(MinTokensParams | None, request.chain.get("min_tokens"))
    ignore = cast(IgnoreEosParams | None, request.chain.get("ignore_eos"))
    return StopRules(
        request.stops,
        frozenset(eos_ids),
        min_tokens=at_least.count if at_least else 0,
        # With finish_open the sequence enforces the limit, since closing tokens may go beyond it.
        max_tokens=sys.maxsize if request.finish_open else request.limits.max_tokens,
        ignore_eos=bool(ignore and ignore.enabled),
    )


def text_stream(request: Request, tokenizer: Tokenizer, eos_ids: tuple[int, ...]) -> TextStream:
    """Return a new, empty output text of one sample."""
    rules = StopRules(max_tokens=sys.maxsize) if request.given else _stop_rules(request, eos_ids)
    return TextStream(tokenizer.stream(request.prompt_ids), rules)


def check_request(request: Request, spec: ModelSpec) -> None:
    """Raise UsageError if the request cannot run on this model."""
    _stop_rules(request, spec.eos_ids)  # raises on invalid rules
    size = len(request.prompt_ids)
    if size == 0:
        raise UsageError("The prompt is empty: it has no tokens.", hint="Give at least one word.")
    is_scored_only = request.limits.max_tokens == 0 and request.prompt_logprobs is not None
    if size >= spec.context + 2 * is_scored_only:  # the last prompt token is not fed
        raise UsageError(
            f"The prompt has {size} tokens, but {spec.name} takes {spec.context} with the output.",
            hint=f"Shorten it to {spec.context - 1 + 2 * is_scored_only} tokens or fewer.",
        )
    for token in (*request.prompt_ids, *request.prefix, *request.stops.ids):
        if not 0 <= token < spec.vocab_size:
            raise UsageError(f"Token id {token} is outside the model's vocabulary of {spec.vocab_size}.")
    if request.n > 1 and request.draw == "greedy" and request.beams is None:
        raise UsageError(
            f"n = {request.n} with a greedy draw would give {request.n} times the same text.",
            hint="Raise the temperature above 0, or leave `n` at 1.",
        )
    if request.n > 1 and request.session:
        raise UsageError(f"A session goes on from one answer, but n is {request.n}.", hint="Leave `n` at 1.")
    if request.drafting.drafter not in ("", NO_DRAFTER) and not spec.can_rollback:
        raise UsageError(
            f"{spec.name} takes no drafts ({request.drafting.drafter}): its layers keep a running state, so "
            "it cannot forget those that are rejected.",
            hint="Leave out `draft`.",
        )
    _check_scores(request, spec)
    if request.n < 1 or request.limits.max_tokens < (request.prompt_logprobs is None):
        raise UsageError("`n` and `max_tokens` have to be at least 1.")


def _check_scores(request: Request, spec: ModelSpec) -> None:
    """Raise UsageError for log-probabilities that the request cannot have."""
    for key in ("logprobs", "prompt_logprobs"):
        count = getattr(request, key)
        if count is not None and not 0 <= count <= spec.vocab_size:
            raise UsageError(f"`{key}` is {count}, but {spec.name} has {spec.vocab_size} token ids.")
    for key in ("logprobs", "trace"):
        if getattr(request, key) is not None and request.finish_open:
            raise UsageError(
                f"`{key}` and `finish_open` do not go together: the model does not choose the tokens that "
                "complete a document at the limit.",
                hint="Leave one of them out.",
            )
    if request.limits.max_tokens == 0 and (
        request.n > 1 or request.beams or request.best_of or request.contrastive
    ):
        raise UsageError(
            "`max_tokens` is 0, so nothing is generated: `n` has to be 1, without `beams`, `best_of` and "
            "`contrastive_alpha`."
        )
    if request.score_from < 1:
        raise UsageError(
            f"score_from is {request.score_from}, but nothing precedes the first token of a prompt.",
            hint="Positions count from 0; give 1 or more.",
        )

"""State by slot: everything that is admitted, forked and released together with a sequence; and the checks
of a request at admission.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from gencli.core.request import NO_DRAFTER, Drafting, Request
from gencli.engine.rewind import can_rewind
from gencli.engine.scheduler import OomGuard
from gencli.engine.sequence import Sequence
from gencli.engine.step import StepHook
from gencli.errors import UsageError
from gencli.models.model_runner import ModelRunner, ModelSpec
from gencli.text.text_stream import StopRules, TextStream
from gencli.text.tokenizer import Tokenizer
from processors.base import Admission, Env
from processors.chain import check_together
from processors.chooser import Chooser
from processors.graphs import Graphs
from processors.history import History
from processors.pipeline import Pipeline
from processors.registry import Registry
from processors.rng import signed
from processors.sampler import Sampler
from processors.stages.masks import IgnoreEosParams, MinTokensParams
from processors.verification import Verifier


class ProcessorState:
    """Tokens, logits processors, draw and verification of each slot, for the engine's `num_slots` slots.

    `graphs` captures the choice of a step's tokens on a GPU.
    """

    def __init__(self, env: Env, registry: Registry, *, num_slots: int, graphs: Graphs | None = None) -> None:
        self.history = History(env.device, slots=num_slots + 1)
        self.pipeline = Pipeline(env, registry)
        self.sampler = Sampler()
        self._graphs = graphs
        self.chooser = Chooser(self.pipeline, self.sampler, graphs)
        self.verifier = Verifier(self.sampler)
        self._spare_slot = num_slots  # for checking requests on submission

    def check(self, request: Request, context: int) -> None:
        """Raise ProcessorsError if a stage rejects the request. `context`: as in Sequence."""
        self.pipeline.admit(self._spare_slot, request.chain, admission(request, context))
        self.pipeline.release(self._spare_slot)

    def admit(self, sequence: Sequence) -> None:
        request, slot = sequence.request, sequence.slot
        self.history.admit(slot, request.prompt_ids, seed=signed(sequence.seed))
        self.pipeline.admit(slot, request.chain, admission(request, sequence.context))
        self.sampler.admit(slot, request.draw)
        self.verifier.admit(slot, request.verification)

    def fork(self, source: int, target: int) -> None:
        """Make slot `target` an independent copy of slot `source`, with the same seed."""
        self.history.fork(source, target, seed=self.history.seed(source))
        self.pipeline.fork(source, target)
        self.sampler.fork(source, target)
        self.verifier.fork(source, target)

    def release(self, slot: int) -> None:
        self.pipeline.release(slot)
        self.history.release(slot)

    def trim(self) -> None:
        if self._graphs is not None:
            self._graphs.clear()


class SlotOwners:
    """All owners of state by slot: the KV lanes, the logits processors and the hooks.

    They are told when a sequence gets its slot and when it leaves it. A lane keeps its tokens then: they are
    the prefix cache. `guard` records out-of-memory while forking. `active`: the hooks that some sample with a
    slot wants; for plain samples there are none, which costs nothing.
    """

    def __init__(self, runner: ModelRunner, state: ProcessorState, guard: OomGuard) -> None:
        self._runner, self._state, self._guard = runner, state, guard
        self._hooks: tuple[StepHook, ...] = ()
        self.active: tuple[StepHook, ...] = ()

    def register(self, *hooks: StepHook) -> None:
        """Set the hooks, in the order of their calls."""
        self._hooks = hooks

    def admit(self, sequence: Sequence) -> None:
        """Set up a sequence that has its slot. Raises ProcessorsError if it cannot run."""
        if sequence.num_computed_tokens:
            self._runner.truncate(sequence.slot, sequence.num_computed_tokens)
        else:
            self._runner.release(sequence.slot)  # the lane holds another sequence's tokens
        for slot in sequence.group.slots[1:] if sequence.group else ():
            self._runner.release(slot)
        self._state.admit(sequence)
        for hook in self._hooks:
            if hook.wants(sequence):
                hook.slots.add(sequence.slot)
                hook.admit(sequence)
        self._update()

    def fork(self, source: int, target: int) -> None:
        """Copy the lane and the state of a slot to another slot: that of a branch, which its hooks count."""
        try:
            self._runner.fork(source, target)
            self._state.fork(source, target)
            for hook in self._hooks:
                if source in hook.slots:
                    hook.slots.add(target)
            self._update()
        except Exception as error:
            if not self._guard.takes(error):
                raise

    def release(self, lanes: Iterable[int], slots: Iterable[int]) -> None:
        """Empty KV lanes, and drop all other state of slots."""
        for lane in lanes:
            self._runner.release(lane)
        for slot in slots:
            self._state.release(slot)
            for hook in self._hooks:
                if slot in hook.slots:
                    hook.slots.remove(slot)
                    hook.release(slot)
            self._update()

    def trim(self) -> None:
        """Free memory after out-of-memory. No slot is in use."""
        for hook in self._hooks:
            hook.trim()
        self._state.trim()
        self._runner.free_cache()

    def _update(self) -> None:
        self.active = tuple(hook for hook in self._hooks if hook.slots)


def effective(request: Request, *, num_ids: int, width: int, registry: Registry) -> Request:
    """Return the request as it runs: without inactive stages, greedy resolved, unknown ids masked.

    Beam search disables draw and drafts; contrastive search and a given output disable drafts. `num_ids`:
    number of ids of the tokenizer; larger ids are masked. `width`: number of logits per row. Raises
    ChainError for stages that contradict each other.
    """
    if (request.given, request.contrastive, request.beams) != (None, None, None):
        request = replace(request, jump="off", drafting=Drafting(NO_DRAFTER))
    if request.beams is not None:
        request = replace(request, draw="greedy")
    chain, draw = request.chain.resolved(request.draw, registry)
    check_together(chain, registry)
    chain = chain.with_stage("tail", registry, size=num_ids) if num_ids < width else chain
    return replace(request, draw=draw, chain=chain)


def admission(request: Request, context: int) -> Admission:
    """Return the request's data for the stages. `context`: maximum number of prompt and output tokens."""
    max_tokens = max(0, min(request.limits.max_tokens, context - len(request.prompt_ids)))
    return Admission(request.prompt_ids, request.stops.ids, max_tokens, can_rewind(request))


def _stop_rules(request: Request, eos_ids: tuple[int, ...]) -> StopRules:
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
    if request.n < 1 or request.limits.max_tokens < (request.prompt_logprobs is None):
        raise UsageError("`n` and `max_tokens` have to be at least 1.")

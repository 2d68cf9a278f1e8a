"""Answers many requests with one model, greedily: gencli's engine, two implementations of transformers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from gencli.bench.load import Ask
from gencli.bench.vocabulary import MadeTokenizer
from gencli.core.events import Finish, Token
from gencli.core.request import Limits, Request
from gencli.models.base import ModelRunner
from gencli.runtime.wiring import bare_engine
from processors.chain import Chain

__all__ = ["Answers", "continuous", "engine", "padded"]

_QUEUED = 4  # requests in the engine per slot, as in a batch


@dataclass(frozen=True, slots=True)
class Answers:
    """The output ids of each prompt, and the occupancy of the slots while requests waited.

    `occupancy` is None if unknown.
    """

    ids: tuple[tuple[int, ...], ...]
    occupancy: float | None = None


def engine(runner: ModelRunner, asks: Sequence[Ask], *, slots: int, tokenizer: MadeTokenizer) -> Answers:
    """Run gencli's engine, fed with a few more requests than it has slots, as `gencli batch` does."""
    on = bare_engine(runner, tokenizer, max_batch=slots)
    ids: list[tuple[int, ...]] = [() for _ in asks]
    rest = iter(_requests(asks))
    num_open = 0
    for request in islice(rest, _QUEUED * slots):
        on.submit(request)
        num_open += 1
    taken, passed, last = 0.0, 0.0, time.perf_counter()
    for event in on.run():
        if isinstance(event, Token):
            ids[int(event.request)] += event.ids
        elif isinstance(event, Finish):
            num_open -= 1
            for request in islice(rest, 1):
                on.submit(request)
                num_open += 1
        now = time.perf_counter()
        if num_open >= slots:
            taken, passed = taken + on.occupancy * (now - last), passed + now - last
        last = now
    return Answers(tuple(ids), taken / passed if passed else None)


def _requests(asks: Sequence[Ask]) -> Iterator[Request]:
    chain = Chain.parse("ignore_eos=true")
    for number, ask in enumerate(asks):
        yield Request(str(number), ask.prompt, chain, draw="greedy", limits=Limits(ask.max_tokens))


def padded(model: Any, asks: Sequence[Ask], *, size: int, is_sorted: bool = False) -> Answers:
    """Run generate() on left-padded batches of `size`, in file order or sorted by length.

    Each row is cut to its own number of tokens; a batch ends with its longest row.
    """
    order = sorted(range(len(asks)), key=lambda i: len(asks[i].prompt) if is_sorted else 0)
    ids: list[tuple[int, ...]] = [() for _ in asks]
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        for index, answer in zip(chosen, _generate(model, [asks[i] for i in chosen]), strict=True):
            ids[index] = answer
    return Answers(tuple(ids))


def _generate(model: Any, asks: Sequence[Ask]) -> list[tuple[int, ...]]:
    from transformers import StoppingCriteriaList

    width = max(len(ask.prompt) for ask in asks)
    pads = [width - len(ask.prompt) for ask in asks]
    quotas = torch.tensor([ask.max_tokens for ask in asks])

    def has_ended(ids: Tensor, scores: Any, **rest: Any) -> Tensor:
        return ids.shape[1] - width >= quotas

    out = model.generate(
        torch.tensor([[0] * pad + list(ask.prompt) for pad, ask in zip(pads, asks, strict=True)]),
        attention_mask=torch.tensor([[0] * pad + [1] * (width - pad) for pad in pads]),
        max_new_tokens=int(quotas.max()),
        stopping_criteria=StoppingCriteriaList([has_ended]),
        do_sample=False,
        pad_token_id=0,
    )
    rows = out[:, width:].tolist()
    return [tuple(row[: ask.max_tokens]) for row, ask in zip(rows, asks, strict=True)]


def continuous(model: Any, asks: Sequence[Ask], *, page: int, **options: Any) -> Answers:
    """Run transformers' continuous batching; each request has its own limit. `page` is in tokens."""
    from transformers import ContinuousBatchingConfig, GenerationConfig

    # Older releases call it a block.
    name = "page_size" if "page_size" in signature(ContinuousBatchingConfig).parameters else "block_size"
    config = ContinuousBatchingConfig(**{name: page}, **options)
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=1)
    ids: list[tuple[int, ...]] = [() for _ in asks]
    with model.continuous_batching_context_manager(
        generation_config=generation, continuous_batching_config=config, warmup=False
    ) as manager:
        for number, ask in enumerate(asks):
            manager.add_request(list(ask.prompt), str(number), max_new_tokens=ask.max_tokens)
        for _ in asks:
            result = manager.get_result(timeout=600)
            ids[int(result.request_id)] = tuple(result.generated_tokens)
    return Answers(tuple(ids))

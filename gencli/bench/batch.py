"""A batch of unequal requests: gencli against transformers' padded generate() and its continuous batching."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from gencli.bench.llama import VOCABULARY, random_llama
from gencli.bench.load import Ask, make_load
from gencli.bench.vocabulary import MadeTokenizer
from gencli.bench.ways import Answers, continuous, engine, padded

__all__ = ["BatchCost", "measure_batch"]

_PAGE = 32  # tokens; with the library's 256 no prefix that is shorter would be shared
_Way = Callable[[Sequence[Ask]], Answers]


@dataclass(frozen=True, slots=True)
class BatchCost:
    """One way through the load, medians over the rounds: seconds, useful output tokens a second, and `ratio`.

    `ratio` says how many times as long as gencli in the same round this took, `equal` how many of the
    requests have the ids that gencli gave, `occupancy` how full gencli's slots were while requests waited.
    """

    prefix: int
    way: str
    requests: int
    output_tokens: int
    seconds: float
    tokens_per_second: float
    ratio: float
    equal: int
    occupancy: float | None


def measure_batch(
    *, requests: int, prefix: int, slots: int, their_slots: int, repeats: int
) -> Iterator[BatchCost]:
    """Yield all ways through one load, `repeats` times, every second time in reverse order.

    gencli runs `slots` requests at once, generate() and generate_batch() `their_slots`.
    """
    asks = make_load(requests, vocab_size=VOCABULARY, prefix=prefix)
    ways = _ways(asks, slots, their_slots)
    for way in ways.values():
        way([replace(ask, max_tokens=2) for ask in asks[:2]])  # what is made once, is made
    rounds = []
    for number in range(repeats):
        names = list(ways) if number % 2 == 0 else list(reversed(ways))
        rounds.append({name: _timed(ways[name], asks) for name in names})
    tokens = sum(ask.max_tokens for ask in asks)
    first = rounds[0]["gencli"][1]
    for name in ways:
        seconds = statistics.median(times[name][0] for times in rounds)
        answers = rounds[0][name][1]
        yield BatchCost(
            prefix=prefix,
            way=name,
            requests=requests,
            output_tokens=tokens,
            seconds=seconds,
            tokens_per_second=tokens / seconds,
            ratio=statistics.median(times[name][0] / times["gencli"][0] for times in rounds),
            equal=sum(a == b for a, b in zip(answers.ids, first.ids, strict=True)),
            occupancy=answers.occupancy,
        )


def _ways(asks: Sequence[Ask], slots: int, their_slots: int) -> dict[str, _Way]:
    """Return the ways by name. Two models, equal in every weight: one is switched to gencli's masks."""
    ours, theirs, tokenizer = random_llama(), random_llama(), MadeTokenizer(VOCABULARY)
    longest = max(len(ask.prompt) + ask.max_tokens for ask in asks)
    return {
        "gencli": lambda asks: engine(ours, asks, slots=slots, tokenizer=tokenizer),
        "generate": lambda asks: padded(theirs, asks, size=their_slots),
        "generate, sorted": lambda asks: padded(theirs, asks, size=their_slots, is_sorted=True),
        "generate_batch": lambda asks: continuous(
            theirs,
            asks,
            max_requests_per_batch=their_slots,
            max_batch_tokens=512,
            page=_PAGE,
            num_blocks=2 * their_slots * math.ceil(longest / _PAGE),
        ),
    }


@torch.inference_mode()
def _timed(way: _Way, asks: Sequence[Ask]) -> tuple[float, Answers]:
    start = time.perf_counter()
    answers = way(asks)
    return time.perf_counter() - start, answers

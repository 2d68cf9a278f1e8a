"""Throughput on a batch of unequal requests: gencli against transformers' generate() and generate_batch()."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from gencli.bench.llama import VOCABULARY, native_runner, random_llama
from gencli.bench.load import Ask, make_load
from gencli.bench.records import BatchCost
from gencli.bench.vocabulary import MadeTokenizer
from gencli.bench.ways import Answers, continuous, engine, padded
from gencli.models.files.quantization import Quantize

__all__ = ["measure_batch"]

_WEIGHTS: tuple[Quantize, Quantize] = ("none", "int8")
_PAGE = 32  # tokens; with the library's default of 256, shorter prefixes are not shared
_Way = Callable[[Sequence[Ask]], Answers]


def measure_batch(
    *, requests: int, prefix: int, slots: int, their_slots: int, repeats: int
) -> Iterator[BatchCost]:
    """Yield the costs of each implementation on one load, measured `repeats` times in alternating order.

    gencli runs `slots` requests at once, generate() and generate_batch() `their_slots`.
    """
    asks = make_load(requests, vocab_size=VOCABULARY, prefix=prefix)
    ways = _ways(asks, slots, their_slots)
    for way in ways.values():
        way([replace(ask, max_tokens=2) for ask in asks[:2]])  # warm up
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
            whole_s=seconds,
            tokens_per_second=tokens / seconds,
            ratio=statistics.median(times[name][0] / times["gencli"][0] for times in rounds),
            equal=sum(a == b for a, b in zip(answers.ids, first.ids, strict=True)),
            occupancy=answers.occupancy,
        )


def _ways(asks: Sequence[Ask], slots: int, their_slots: int) -> dict[str, _Way]:
    """Return the implementations by name. gencli's own decoder has the weights of the others' model."""
    theirs, tokenizer = random_llama(), MadeTokenizer(VOCABULARY)
    ours, rounded = (native_runner(theirs, max_lanes=slots, quantize=one) for one in _WEIGHTS)
    longest = max(len(ask.prompt) + ask.max_tokens for ask in asks)
    return {
        "gencli": lambda asks: engine(ours, asks, slots=slots, tokenizer=tokenizer),
        "gencli, int8": lambda asks: engine(rounded, asks, slots=slots, tokenizer=tokenizer),
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

"""Measure many requests of unequal length beside transformers.

python scripts/bench/batch.py --help
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from itertools import islice
from typing import Annotated, Any

import torch
import typer
from random_models import VOCABULARY, MadeTokenizer, native_runner, random_llama
from report import measuring, run_benchmark
from torch import Tensor

from gencli.cli.commands.bench import Form, Threads, figure, write_report
from gencli.core.events import Finish, Token
from gencli.core.request import Limits, Request
from gencli.models.files.model_files import Quantize
from gencli.models.model_runner import ModelRunner
from gencli.runtime.wiring import bare_engine
from processors.chain import Chain


@dataclass(frozen=True, slots=True)
class BatchCost:
    """One load of requests in one implementation, medians over the rounds."""

    prefix: int = figure("tokens that all prompts begin with")
    way: str = figure("gencli, gencli with int8, or a method of transformers")
    requests: int = figure("requests of the load")
    output_tokens: int = figure("tokens generated in all")
    whole_s: float = figure("seconds of the whole load", 2)
    tokens_per_second: float = figure("output_tokens / whole_s", 0)
    ratio: float = figure("whole_s / gencli's whole_s in the same round", 2)
    equal: int = figure("requests with the same token ids as in gencli")
    occupancy: float | None = figure("share of slots in use while requests wait, 0 to 1", 3)


_MOST = 1_000_000
_Requests = Annotated[
    int, typer.Option("--requests", min=2, max=_MOST, metavar="N", help="Requests of the load.")
]
_Prefix = Annotated[
    list[int] | None,
    typer.Option(
        "--prefix",
        min=0,
        max=_MOST,
        metavar="N",
        help="Tokens that all prompts begin with; 0 and 200 if not given. (repeatable)",
    ),
]
_Slots = Annotated[
    int, typer.Option("--max-batch", min=1, max=_MOST, metavar="N", help="Samples that gencli runs at once.")
]
_TheirSlots = Annotated[
    int,
    typer.Option(
        "--their-batch", min=1, max=_MOST, metavar="N", help="Samples that transformers runs at once."
    ),
]
_Repeats = Annotated[int, typer.Option("--repeats", min=1, max=_MOST, metavar="N", help="Rounds.")]


def batch(
    requests: _Requests = 256,
    prefix: _Prefix = None,
    max_batch: _Slots = 16,
    their_batch: _TheirSlots = 16,
    repeats: _Repeats = 1,
    threads: Threads = 2,
    form: Form = "text",
) -> int:
    """Measure the load with each common prefix and print the costs. Return the exit code."""
    with measuring(threads):
        costs = [
            cost
            for length in prefix or (0, 200)
            for cost in measure_batch(
                requests=requests, prefix=length, slots=max_batch, their_slots=their_batch, repeats=repeats
            )
        ]
    conditions = {
        "dtype": "float32",
        "threads": threads,
        "rounds": repeats,
        "max_batch": max_batch,
        "their_batch": their_batch,
    }
    write_report(costs, form, conditions=conditions)
    return 0


_WEIGHTS: tuple[Quantize, Quantize] = ("none", "int8")
_PAGE = 32  # tokens; with the library's default of 256, shorter prefixes are not shared


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


_PROMPT, _OUTPUT = (10, 400), (10, 200)  # tokens, bounds included
_FIRST_WORD = 300  # lower ids are bytes and JSON punctuation of MadeTokenizer


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: prompt ids, and the number of output tokens."""

    prompt: tuple[int, ...]
    max_tokens: int


_Way = Callable[[Sequence[Ask]], Answers]


def make_load(count: int, *, vocab_size: int, prefix: int = 0, seed: int = 0) -> tuple[Ask, ...]:
    """Return `count` requests of random words; their prompts begin with the same `prefix` tokens."""
    draw = random.Random(seed)

    def words(length: int) -> tuple[int, ...]:
        return tuple(draw.choices(range(_FIRST_WORD, vocab_size - 1), k=length))

    sizes = [(draw.randint(*_PROMPT), draw.randint(*_OUTPUT)) for _ in range(count)]
    shared = words(prefix)
    return tuple(Ask(shared + words(prompt), output) for prompt, output in sizes)


MEASURES = (
    "Measure one load of requests of unequal length, greedily, on a random model with 15M parameters: in "
    "gencli, in generate() of transformers with padded batches, unsorted and sorted by length, and in "
    "generate_batch() of transformers."
)

if __name__ == "__main__":
    sys.exit(run_benchmark(batch, MEASURES, BatchCost))

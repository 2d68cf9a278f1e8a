"""Each stage alone on the logits of one step, compared to torch.logsumexp, a single pass over them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gencli.bench.records import StageCost
from gencli.bench.sampler import made_logits, timed
from gencli.bench.vocabulary import MadeTokenizer
from processors.base import Admission, Env
from processors.catalog import BUILTIN
from processors.chain import Chain, Stage
from processors.errors import ProcessorsError
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.testing.examples import examples

__all__ = ["measure_stages"]

_COMMON = 500  # distinct ids of a history
_FITTING = {"bias": 'bias={"42": 1.5, "a": -2}'}  # examples adapted to the words of the made-up tokenizer
_AGAIN = 40  # last tokens that also occur earlier, for stages that look for repetitions


def measure_stages(
    names: Sequence[str], counts: Sequence[int], width: int, history: int, kind: str, repeats: int
) -> Iterator[StageCost]:
    """Yield the cost of each stage and number of rows; a stage and logsumexp take turns in each round.

    A stage has the values of its example in the catalogue; if these need texts that the made-up tokenizer
    lacks, the first accepted values of the contract kit. `history`: tokens of each prompt.
    """
    tokenizer = MadeTokenizer(width)
    env = Env(width, tokenizer, tokenizer.eos_ids)
    for rows in counts:
        logits = made_logits(kind, rows, width)
        prompts = [_prompt(row, history) for row in range(rows)]
        for name in names:
            yield _measured(name, env, prompts, logits, repeats)


def _measured(
    name: str, env: Env, prompts: Sequence[tuple[int, ...]], logits: Tensor, repeats: int
) -> StageCost:
    pipeline, store = Pipeline(env), History(slots=len(prompts))
    stage = _admitted(name, pipeline, prompts)
    for slot, prompt in enumerate(prompts):
        store.admit(slot, prompt, seed=slot)
    slots, work = range(len(prompts)), torch.empty_like(logits)

    def apply() -> None:
        rows = Rows.build(store, slots)
        pipeline.stage(name).prepare(rows)
        pipeline.stage(name).apply(work, rows)

    def scan() -> None:
        work.logsumexp(-1)

    rounds = []
    for number in range(repeats + 2):
        token = prompts[0][number % len(prompts[0])]
        store.append(slots, [(token,)] * len(prompts))  # a stage that follows the text has work in each step
        for slot in slots:
            pipeline.commit(slot, (token,))
        times = []
        for way in (apply, scan):
            work.copy_(logits)
            times.append(timed(way))
        rounds.append(times)
    ours, passes = (statistics.median(column) for column in zip(*rounds[2:], strict=True))
    ratio = statistics.median(one / two for one, two in rounds[2:])
    return StageCost(name, str(Chain((stage,))), len(logits), ours, passes, ratio)


def _admitted(name: str, pipeline: Pipeline, prompts: Sequence[tuple[int, ...]]) -> Stage:
    """Admit a request with the stage to each slot; return the stage with its values."""
    spec = next(spec for spec in BUILTIN if spec.name == name)
    text = _FITTING.get(name) or (spec.note.example if spec.note else "")
    found: list[Stage] = [*Chain.parse(text), *((name, params) for params in examples(spec.params))]
    for stage in found:
        try:
            for slot, prompt in enumerate(prompts):
                pipeline.admit(slot, Chain((stage,)), Admission(prompt, max_tokens=1000))
        except ProcessorsError:
            continue
        return stage
    raise ProcessorsError(f"No example of the stage {name} fits the made-up tokenizer.")


def _prompt(row: int, length: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(row)
    ids = torch.randint(_COMMON, (length,), generator=generator)
    if length > 4 * _AGAIN:
        for part in (1, 2):
            start = part * length // 3
            ids[start : start + _AGAIN] = ids[-_AGAIN:]
    return tuple(ids.tolist())

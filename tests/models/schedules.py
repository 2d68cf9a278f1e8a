"""Random schedules of requests, with admissions, drafts and cancellations, run on a runner."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gencli.core.events import Finish
from gencli.core.request import Drafting, Feed, Limits, StepPlan
from gencli.engine.engine import Engine
from gencli.speculative.drafter import DraftAsk, Drafter, NgramDrafter
from processors.graphs import Graphs
from tests.engine.harness import TOKENIZER, request
from tests.models.tiny_models import VOCAB
from tests.recorder import CpuRecorder

LANES = 6
CHAINS = ("temperature=0", "temperature=0.9 | top_p=0.95", "repetition=1.2 | temperature=0.8 | top_k=20")


class Guessing(NgramDrafter):
    """Copies up to a random number of tokens and guesses some more, most of which are refused."""

    def propose(self, asks: Sequence[DraftAsk]) -> list[list[int]]:
        """Propose drafts; which ones depends on the text alone."""
        return [self._guessed(*pair) for pair in zip(asks, super().propose(asks), strict=True)]

    @staticmethod
    def _guessed(ask: DraftAsk, run: list[int]) -> list[int]:
        draw = random.Random(len(ask.tokens))
        return run[: draw.choice((0, 1, 3, 9))] + draw.choices(range(VOCAB), k=draw.choice((0, 0, 1, 3)))


def schedule(seed: int) -> list[tuple[int, Any]]:
    """When requests come, which, and when one is cancelled: (step, request or the id of one to cancel)."""
    draw = random.Random(seed)
    acts: list[tuple[int, Any]] = []
    for number in range(draw.randint(2, 5)):
        size = draw.choice((1, 3, 9, 9, 30, 250))
        text = draw.choice("abc") * draw.randint(1, size) + draw.choice("abc") * draw.randint(0, 12)
        drafting = Drafting("ngram", draw.choice((None, 3)))
        one = request(
            text, key=str(number), seed=seed, chain=f"ignore_eos=true | {draw.choice(CHAINS)}",
            limits=Limits(max_tokens=draw.randint(1, 12)), drafting=drafting,
        )  # fmt: skip
        acts.append((draw.randint(0, 8), one))
        if draw.random() < 0.2:
            acts.append((draw.randint(0, 12), str(number)))
    return sorted(acts, key=lambda act: act[0])


def texts(
    seed: int, on: Any, *, drafter: Callable[[], Drafter] = NgramDrafter, **options: Any
) -> dict[str, tuple[str, Any]]:
    """The texts of a schedule on a runner of LANES lanes, which are empty before and behind it."""
    most = random.Random(seed).randint(1, LANES)
    engine = Engine(on, TOKENIZER, max_batch=most, drafter=drafter(), **options)
    acts, ends, step = schedule(seed), {}, 0
    while acts or engine.has_work:
        while acts and acts[0][0] <= step:
            act = acts.pop(0)[1]
            engine.cancel(act) if isinstance(act, str) else engine.submit(act)
        found = [event for event in engine.step() if isinstance(event, Finish)]
        ends |= {event.request: (event.text, event.reason) for event in found}
        step += 1
    for lane in range(LANES):
        on.release(lane)
    if seed % 10 == 0:
        on.free_cache()  # the buffers move
    return ends


def check_replays(
    make: Callable[[Graphs], Any],
    *,
    num_seeds: int,
    least: int,
    drafter: Callable[[], Drafter] = NgramDrafter,
) -> None:
    """Recorded steps, of which more than `least` are replayed, give the texts of eager ones."""
    graphs = Graphs(CpuRecorder)
    recorded, eager = make(graphs), make(Graphs(None))
    for seed in range(num_seeds):
        assert texts(seed, recorded, drafter=drafter) == texts(seed, eager, drafter=drafter), seed
    assert graphs.num_replayed > least
    assert not graphs.notices


def tokens_at(length: int, lanes: Any = range(3), last: int = 7) -> StepPlan:
    """A step of one token a lane, behind texts of equal length."""
    return StepPlan(tuple(Feed(lane, length, (last + lane,), 1) for lane in lanes))


def prompts(length: int, lanes: Any = range(3)) -> StepPlan:
    """Random prompts."""
    noise = random.Random(length)
    return StepPlan(tuple(Feed(lane, 0, tuple(noise.choices(range(VOCAB), k=length)), 1) for lane in lanes))


def held(run: Any, *, steps: int, length: int = 5, lanes: Any = range(3)) -> list[Any]:
    """Logits of steps behind prompts."""
    run.forward(prompts(length, lanes))
    return [run.forward(tokens_at(length + step, lanes)) for step in range(steps)]


def behind_a_move(run: Any, buffer: Any) -> list[Any]:
    """Logits of steps, of which the fourth finds one buffer elsewhere, as after a growth that failed."""
    run.forward(prompts(5))
    found = []
    for step in range(6):
        if step == 3:
            with torch.inference_mode():
                buffer.data, old = buffer.data.clone(), buffer.data
                old.fill_(7.0)
        found.append(run.forward(tokens_at(5 + step)))
    return found

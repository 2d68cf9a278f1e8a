"""Decode steps in static shapes: recorded and replayed on the CPU they give what the same shapes give eagerly."""

import random
from functools import cache

import pytest
import torch

from gencli.core.events import Finish
from gencli.core.request import Drafting, Limits
from gencli.core.step import Feed, StepPlan
from gencli.engine.engine import Engine
from gencli.models.decoder.decode_steps import roomy
from gencli.models.decoder.runner import DecoderRunner
from gencli.speculative.ngram import NgramDrafter
from processors.graphs import Graphs
from tests.engine.harness import TOKENIZER, request
from tests.models.native import native_decoder
from tests.models.tiny_models import VOCAB, build
from tests.recorder import CpuRecorder
from tests.sham import CUDA, on_sham, sham_device

LANES = 6
CHAINS = ("temperature=0", "temperature=0.9 | top_p=0.95", "repetition=1.2 | temperature=0.8 | top_k=20")


@cache
def decoder(kind):
    return native_decoder(build(kind))


def runner(kind, graphs=None, max_lanes=LANES):
    return DecoderRunner(decoder(kind), max_lanes=max_lanes, graphs=graphs)


def schedule(seed):
    """When requests come, which, and when one is cancelled: (step, request or the id of one to cancel)."""
    draw = random.Random(seed)
    acts = []
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


def texts(seed, on):
    """The texts of a schedule."""
    engine = Engine(on, TOKENIZER, max_batch=random.Random(seed).randint(1, LANES), drafter=NgramDrafter())
    acts, ends, step = schedule(seed), {}, 0
    while acts or engine.has_work:
        while acts and acts[0][0] <= step:
            act = acts.pop(0)[1]
            engine.cancel(act) if isinstance(act, str) else engine.submit(act)
        ends |= {
            event.request: (event.text, event.reason) for event in engine.step() if isinstance(event, Finish)
        }
        step += 1
    for lane in range(LANES):
        on.release(lane)
    if seed % 10 == 0:
        on.free_cache()  # the buffers move
    return ends


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2", "phi3"])
def test_replayed_steps_choose_the_tokens_of_eager_ones(kind):
    graphs = Graphs(CpuRecorder)
    recorded, eager = runner(kind, graphs), runner(kind, Graphs(None))
    for seed in range(50):
        assert texts(seed, recorded) == texts(seed, eager), seed
    assert graphs.num_replayed > 200
    assert not graphs.notices

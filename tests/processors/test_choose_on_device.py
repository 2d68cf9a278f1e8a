"""On CUDA the end of a chain is a few kernels; their tokens are those of the stages and the sampler."""

import random
from functools import partial

import pytest
import torch

from processors.base import Admission
from processors.chain import Chain
from processors.choose_on_device import DeviceChoice
from processors.graphs import Graphs
from processors.rows import Rows
from tests.processors.random_chains import KINDS, PARTS, admitted, compare_choice, random_cases
from tests.recorder import CpuRecorder

compare = partial(compare_choice, DeviceChoice)


@pytest.mark.parametrize("kind", KINDS)
def test_random_chains_over_all_kinds_of_logits(kind):
    for case in random_cases(kind, mixed=0.6, draws=("gumbel", "gumbel", "greedy")):
        compare(*case)


ORDERS = (
    "top_p=0.9 | temperature=0.7",
    "top_k=20 | top_p=0.7 | temperature=3",
    "top_p=0.8 | min_p=0.1 | top_k=30 | temperature=0.9",
    "temperature=0.8 | top_p=0.6 | top_k:k=40,ties=keep",
    "top_p=0.9 | temperature=0.5 | top_k=9",
    "top_p:p=0.8,boundary=exclusive | min_p=0.2",
)


@pytest.mark.parametrize("width", [33_000, 5000, 513, 1])
def test_stages_run_in_the_order_of_each_row(width):
    for seed, kind in enumerate(("normal", "whole numbers", "bfloat16", "equal")):
        generator = torch.Generator().manual_seed(seed)
        compare(list(ORDERS), KINDS[kind](torch.randn(len(ORDERS), width, generator=generator), generator))
        compare([ORDERS[seed]], KINDS[kind](torch.randn(1, width, generator=generator), generator))


def test_ten_thousand_rows():
    draw, generator = random.Random(1), torch.Generator().manual_seed(1)
    for _ in range(25):
        logits = 3 * torch.randn(400, draw.choice((100, 300, 700)), generator=generator)
        logits = logits.bfloat16() if draw.random() < 0.5 else logits
        one = " | ".join(filter(None, map(draw.choice, PARTS[1:])))
        chains = [draw.choice((one, *ORDERS)) for _ in range(400)]
        compare(chains, logits)


def test_a_slot_that_is_admitted_again_has_its_new_values():
    logits = 3 * torch.randn(1, 5000)
    pipeline, sampler, rows = admitted(["top_k=1"], 5000)
    choose = DeviceChoice(pipeline, sampler)
    assert choose(logits, rows) == logits.argmax()
    pipeline.admit(0, Chain.parse("temperature=50 | top_k=400"), Admission((1,)))
    assert torch.equal(choose(logits, rows), sampler(pipeline(logits, rows), rows))


def test_a_recorded_choice_gives_the_tokens_of_the_stages_while_requests_come_and_go():
    draw = random.Random(5)
    chains = ["", "temperature=0.8", "top_k=5 | top_p=0.9", "repetition=1.3 | frequency=0.2 | top_p=0.8",
              "suppress=[3] | temperature=0.7 | min_p=0.1"]  # fmt: skip
    pipeline, sampler, rows = admitted(chains[:1] * 4, 300)
    history, graphs = rows.history, Graphs(CpuRecorder)
    choose, logits = DeviceChoice(pipeline, sampler, graphs), torch.empty(4, 300)
    for step in range(60):
        if step % 6 == 0:
            slot, prompt = draw.randrange(4), [draw.randrange(300) for _ in range(draw.randrange(1, 20))]
            history.admit(slot, prompt, seed=step)
            pipeline.admit(slot, Chain.parse(draw.choice(chains)).active(), Admission(tuple(prompt)))
        logits.copy_(3 * torch.randn(4, 300, generator=torch.Generator().manual_seed(step)))
        rows = Rows.build(history, range(4))
        tokens = choose(logits, rows)
        assert torch.equal(tokens, sampler(pipeline(logits, rows), rows))
        history.append(range(4), [[token] for token in tokens.tolist()])
    assert graphs.num_recorded > 0
    assert graphs.num_replayed > 20

"""On CUDA the end of a chain is a few kernels; their tokens are those of the stages and the sampler."""

import random
from functools import partial
from itertools import product

import torch

from processors.base import Admission
from processors.chain import Chain
from processors.choose_on_device import DeviceChoice
from processors.graphs import Graphs
from processors.registry import builtin_registry
from processors.rows import Rows
from tests.processors.random_chains import KINDS, admitted, compare_choice, random_cases
from tests.processors.test_choose_on_device import ORDERS
from tests.recorder import CpuRecorder

compare = partial(compare_choice, DeviceChoice)


DRAWS = ("gumbel", "gumbel", "greedy", "multinomial")


def test_random_chains_over_all_kinds_of_logits():
    for kind in KINDS:
        for case in random_cases(kind, 6, mixed=0.6, draws=DRAWS):
            compare(*case)


ORDERED = ("normal", "whole numbers", "bfloat16", "equal")


def test_stages_run_in_the_order_of_each_row():
    for width, (seed, kind) in product((33_000, 5000, 513, 1), enumerate(ORDERED)):
        generator = torch.Generator().manual_seed(seed)
        compare(list(ORDERS), KINDS[kind](torch.randn(len(ORDERS), width, generator=generator), generator))
        compare([ORDERS[seed]], KINDS[kind](torch.randn(1, width, generator=generator), generator))


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


PROCESSED = (
    *ORDERS,
    "",
    "tail=200 | temperature=0.8",
    "typical=0.8 | top_k=9",
    "presence=1 | min_p=0.2 | top_p=0.6",
    "allowed=[1,2,3,4,5,6] | top_k=4 | temperature=2",
    "suppress=[0]",
)


def masked_by(run):
    """By which stage each id [R, V] is masked, and what `run` returns."""
    names, by = builtin_registry().names(), []

    def seen(name, logits):
        last = by[-1] if by else torch.full(logits.shape, -1)
        by.append(torch.where((logits == -torch.inf) & (last < 0), names.index(name), last))

    found = run(seen)
    return by[-1], found


def test_processed_logits_are_those_of_the_stages_and_so_is_what_each_masks():
    for case in (("normal", 300), ("masked", 300), ("faulty", 300), ("whole numbers", 5000)):
        check_processed(*case)


def check_processed(*case):
    kind, width = case
    generator = torch.Generator().manual_seed(width)
    logits = KINDS[kind](torch.randn(len(PROCESSED), width, generator=generator), generator)
    draws = [("gumbel", "multinomial", "greedy")[place % 3] for place in range(len(PROCESSED))]
    pipeline, sampler, rows = admitted(PROCESSED, width, draws)
    choose = DeviceChoice(pipeline, sampler)
    stages, same = masked_by(lambda seen: pipeline(logits, rows, seen))
    effects, (found, tokens) = masked_by(lambda seen: choose.process(logits, rows, seen))
    assert torch.equal(tokens, sampler(same, rows)), case
    sound = same.amax(1).isfinite()  # of failed rows only the fault counts
    for part in (found, choose.process(logits, rows)[0]):
        assert torch.equal(part[sound], same[sound]), case
        assert not part[~sound].amax(1).isfinite().any(), case
    assert torch.equal(effects[sound], stages[sound]), case
    assert torch.equal(choose(logits, rows), choose.process(logits, rows)[1]), case

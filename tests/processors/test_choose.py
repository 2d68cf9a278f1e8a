"""The fused tail of a chain chooses the tokens that its stages and the draw choose, one after the other."""

import math
from functools import partial

import torch

from processors.base import Admission, Env
from processors.chain import Chain
from processors.chooser import Chooser
from processors.fused import FusedValues, _kept
from processors.history import History
from processors.pipeline import Pipeline, trace
from processors.registry import Registry, builtin_registry
from processors.rows import Rows
from processors.sampler import EMPTY, NON_FINITE, Sampler
from tests.processors.random_chains import admitted, compare_choice

INF = math.inf


compare = partial(compare_choice, Chooser)


def test_rows_that_fail_are_told_apart():
    logits = torch.randn(4, 5000)
    logits[0], logits[1, 7], logits[2, 7] = -INF, math.nan, INF
    for chain in ("temperature=0.8", "top_p=0.9", "top_k=3", "min_p=0.1"):
        found = compare([chain] * 4, logits)
        assert found[:3].tolist() == [EMPTY, NON_FINITE, NON_FINITE], chain
        assert found[3] >= 0, chain


KEPT = [[a, b, c] for a in (17, 130) for b in (17, 130) for c in (17, 130)]


def test_of_equal_logits_the_lowest_ids_stay_wherever_they_are():
    logits = torch.full((1, 9000), -5.0)
    logits[0, [8990, 17, 4000, 130]] = 1.0
    assert compare(["top_k=1"], logits).item() == 17
    assert compare(["temperature=9 | top_k=2"] * 3, logits.expand(3, -1).contiguous()).tolist() in KEPT


CUTS = [
    *(f"top_p:p={p},boundary={side}" for p in (0, 0.01, 0.4, 0.999) for side in ("inclusive", "exclusive")),
    "temperature=2 | top_p=0.9",
    "min_p=0.1 | top_p=0.95",
    "temperature=0.5 | min_p=0.01 | top_p=0.6",
]


def test_of_many_ids_those_stay_that_the_stages_keep():
    logits = torch.randn(2, 9000, generator=torch.Generator().manual_seed(1))
    cases = [logits, 4 * logits, (4 * logits).round() / 4, logits.masked_fill(logits > 1, -INF)]
    for chain in CUTS:
        values, certain = FusedValues.of([Chain.parse(chain).stages] * 2), 0
        pipeline, _, rows = admitted([chain] * 2, 9000)
        for case in cases:
            kept, is_certain = _kept(values.cooled(case.numpy(), case.amax(1, keepdim=True).numpy()), values)
            is_equal = ((pipeline(case, rows) > -INF).numpy() == kept).all(1)
            assert (is_equal | ~is_certain[:, 0]).all(), chain
            certain += is_certain.sum()
        assert certain >= 6, chain


def test_a_cut_that_rounding_might_move_is_left_to_the_stages():
    logits = torch.zeros(64, 3)  # the share of one token is below top-p by less than the margin
    found = compare(["top_p=0.3333333333334"] * 64, logits)
    assert set(found.tolist()) == {0, 1}


def test_rows_with_other_draws_and_in_other_orders_are_left_to_the_stages():
    logits = 3 * torch.randn(3, 5000)
    chain = "temperature=0.8 | top_p=0.9"
    compare([chain] * 3, logits, ["gumbel", "greedy", "multinomial"])
    compare(["top_p=0.9 | temperature=0.8", chain, "top_k=5 | repetition=1.2"], logits)


def test_a_slot_that_is_admitted_again_has_its_new_values():
    logits = 3 * torch.randn(1, 5000)
    pipeline, sampler, rows = admitted(["top_k=1"], 5000)
    choose = Chooser(pipeline, sampler)
    assert choose(logits, rows) == logits.argmax()
    pipeline.admit(0, Chain.parse("temperature=50 | top_k=400"), Admission((1,)))
    assert torch.equal(choose(logits, rows), sampler(pipeline(logits, rows), rows))


def test_rows_without_stages_may_come_and_go():
    pipeline, sampler, rows = admitted(["", "", ""], 5000)
    choose, logits = Chooser(pipeline, sampler), 3 * torch.randn(3, 5000)
    for index in ([0, 1, 2], [2], [1, 0]):
        some = rows.select(index)
        assert torch.equal(choose(logits[index], some), sampler(pipeline(logits[index], some), some))


def test_a_trace_shows_every_stage():
    pipeline, sampler, rows = admitted(["temperature=0.8 | top_p=0.9"], 5000)
    records, stop = trace(pipeline)
    choose = Chooser(pipeline, sampler)
    choose(torch.randn(1, 5000), rows)
    assert [record.stage for record in records] == ["temperature", "top_p"]
    stop()
    choose(torch.randn(1, 5000), rows)
    assert len(records) == 2


def test_a_stage_of_that_name_from_a_plug_in_is_not_fused():
    stage = builtin_registry().load("top_k")

    class Own(stage):
        name = "own"

        def apply(self, logits, rows):
            return logits.masked_fill(torch.arange(logits.shape[1]) != 5, -INF)

    registry = Registry(tuple(builtin_registry().spec(name) for name in builtin_registry().names()))
    registry.register(Own)
    pipeline, sampler, history = Pipeline(Env(5000), registry), Sampler(), History(slots=1)
    history.admit(0, (1,))
    pipeline.admit(0, Chain.parse("temperature=0.8 | own=3", registry), Admission((1,)))
    sampler.admit(0, "gumbel")
    assert Chooser(pipeline, sampler)(torch.randn(1, 5000), Rows.build(history, [0])) == 5

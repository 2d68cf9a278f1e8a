"""NaN and +inf among the logits are an error of their row, wherever they stand and whatever masks them."""

import math
from itertools import product

import torch

from processors.base import Admission, Env
from processors.catalog import BUILTIN
from processors.chain import Chain
from processors.errors import EmptySupport, NonFiniteLogits
from processors.history import History
from processors.pipeline import Pipeline
from processors.registry import Registry, builtin_registry
from processors.rows import Rows
from processors.sampler import EMPTY, NON_FINITE, Sampler
from processors.verification import Proposal, rejection
from tests.processors.testing.test_broken_stages import Shift

NAN, INF = math.nan, math.inf


MASKS = ("suppress=[3]", "allowed=[0,1,2]", "tail=3", "bias=[[3,-1e30]]", "min_p=0.5", "top_k=1", "top_p=0.1")


class Piped:
    """A pipeline with one row for each chain, over toy logits."""

    def __init__(self, *chains, width=4, registry=None):
        self.pipeline, history = Pipeline(Env(width), registry), History(slots=len(chains))
        self.sampler = Sampler()
        for slot, chain in enumerate(chains):
            history.admit(slot, (1,), seed=slot)
            self.pipeline.admit(slot, Chain.parse(chain, registry or builtin_registry()), Admission((1,)))
            self.sampler.admit(slot, "gumbel")
        self.rows = Rows.build(history, range(len(chains)))

    def tokens(self, logits):
        return self.sampler(self.pipeline(logits, self.rows), self.rows).tolist()

    def why(self, logits, place=0):
        return self.pipeline.explain_failure(logits, self.rows, place)


def test_a_faulty_logit_that_a_stage_masks_fails_the_row():
    for case in product(MASKS, (torch.float32, torch.bfloat16, torch.float16), (NAN, INF)):
        chain, dtype, fault = case
        piped, logits = Piped(chain), torch.tensor([[0, 0.7, 0.8, fault]], dtype=dtype)
        assert piped.tokens(logits) == [NON_FINITE], case
        error = piped.why(logits)
        assert isinstance(error, NonFiniteLogits), case
        assert error.stage == "model", case


def test_a_ban_by_bias_hides_no_fault():
    piped, logits = Piped("bias=[[3,1]]"), torch.tensor([[0, 0.7, 0.8, NAN]])
    stage = piped.pipeline.stage("bias")
    stage.admit(0, stage.Params(bias=((3, -INF),)), Admission((1,)))
    assert piped.tokens(logits) == [NON_FINITE]


def test_only_the_row_with_the_fault_fails():
    piped = Piped("suppress=[3]", "suppress=[3]", "top_k=2")
    logits = torch.tensor([[0, 0.7, 0.8, NAN], [9, 0, 0, 0.5], [0, 0, 9, 8.9]])
    first, second, third = piped.tokens(logits)
    assert first == NON_FINITE
    assert second in (0, 1, 2)
    assert third in (2, 3)


def test_a_row_of_nothing_but_masks_is_empty_and_not_faulty():
    piped, logits = Piped("suppress=[3]"), torch.full((1, 4), -INF)
    assert piped.tokens(logits) == [EMPTY]
    assert isinstance(piped.why(logits), EmptySupport)


class Shatter(Shift):
    """NaN at one id, from a plug-in."""

    def apply(self, logits, rows):
        logits[:, 3] = NAN
        return logits


def _registry(stage):
    registry = Registry(BUILTIN)
    registry.register(stage)
    return registry


def test_a_fault_of_a_plugin_that_a_later_stage_masks_names_the_plugin():
    piped = Piped("shift=1 | suppress=[3]", registry=_registry(Shatter))
    logits = torch.tensor([[0, 0.7, 0.8, 0.1]])
    assert piped.tokens(logits) == [NON_FINITE]
    assert piped.why(logits).stage == "shift"


class Repair(Shift):
    """A plug-in that puts a number in the place of NaN."""

    def apply(self, logits, rows):
        return logits.nan_to_num()


def test_a_plugin_cannot_repair_the_models_logits():
    piped, logits = Piped("shift=1", registry=_registry(Repair)), torch.tensor([[0, 0.7, 0.8, NAN]])
    assert piped.tokens(logits) == [NON_FINITE]
    assert piped.why(logits).stage == "model"


def test_nan_of_a_plugin_where_an_earlier_stage_has_masked_is_nothing():
    piped = Piped("suppress=[3] | shift=1", registry=_registry(Shatter))
    assert piped.tokens(torch.tensor([[0, 0.7, 0.8, 0.1]]))[0] in (0, 1, 2)


class Careless(Shift):
    """Changes in place what it gathered."""

    def shifts(self, rows):
        return super().shifts(rows).mul_(2)


def test_a_plugin_that_changes_gathered_values_changes_no_later_step():
    piped, logits = Piped("shift=1", registry=_registry(Careless)), torch.zeros(1, 4)
    first, second = (piped.pipeline(logits, piped.rows).tolist() for _ in range(2))
    assert first == second == [[0, -2, -2, -2]]


def test_a_fault_in_the_targets_row_stops_the_drafts_before_it():
    piped = Piped("suppress=[3]")
    history = piped.rows.history
    rows = Rows.build(history, [0], [(1, 2)])
    logits = torch.tensor([[0.0, 90, 0, 0], [0, 0, 1, NAN], [0, 0, 1, 1]])
    q = torch.tensor([[0.0, 90, 0, 0], [0, 0, 90, 0]])
    processed = piped.pipeline(logits, rows)
    tokens, counts = rejection(processed, rows, piped.sampler, Proposal(q, (True, True)))
    assert counts.tolist() == [2]
    assert tokens[0, :2].tolist() == [1, NON_FINITE]


def test_chains_without_masks_are_not_looked_at():
    class Counting(Pipeline):
        def looks(self):
            history = History()
            history.admit(0, (1,))
            return sum(call.looks_first for call in self.program(Rows.build(history, (0,))).calls)

    def looks(chain):
        pipeline = Counting(Env(8))
        pipeline.admit(0, Chain.parse(chain), Admission((1,)))
        return pipeline.looks()

    assert looks("temperature=0.5 | min_p=0.1 | top_k=3 | top_p=0.9 | repetition=1.2") == 0
    assert looks("suppress=[1] | allowed=[1,2] | bias=[[1,1]] | repetition=1.1") == 1

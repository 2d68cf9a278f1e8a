"""Chains without an engine: the same draws, and the same texts in transformers' own loop."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from transformers import AutoModelForCausalLM

from gencli import LLM
from gencli.models.files.local_models import find_local
from processors import LogitsProcessor, Params, Phase, Processor, Registry, derive, param, sample
from processors.catalog import BUILTIN
from processors.errors import EmptySupport, NonFiniteLogits, ProcessorsError, UnknownStage
from processors.rng import signed
from tests.processors.reference import draw_twins as samplers

LOGITS = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))


def test_a_row_draws_as_the_prompt_of_that_number_does():
    tokens = sample(LOGITS, "temperature=0.7 | top_p=0.9", seed=3, position=2)
    for row, token in enumerate(tokens.tolist()):
        alone = sample(LOGITS[row], "temperature=0.7 | top_p=0.9", seed=3, position=2)
        assert (alone == token) == (row == 0)
    assert sample(LOGITS, seed=3, position=2).tolist() == [
        samplers.gumbel_max(logits.tolist(), signed(derive(3, row)), 2) for row, logits in enumerate(LOGITS)
    ]


def test_temperature_0_takes_the_most_likely_id_and_the_logits_stay():
    before = LOGITS.clone()
    assert torch.equal(sample(LOGITS, "temperature=0"), LOGITS.argmax(dim=-1))
    assert torch.equal(LOGITS, before)
    assert sample(LOGITS[0], draw="greedy").shape == ()


def test_stages_see_prompt_and_output():
    top = int(LOGITS[0].argmax())
    assert int(sample(LOGITS[0], "presence=50", draw="greedy", output=[top])) != top
    assert int(sample(LOGITS[0], "presence=50", draw="greedy")) == top


def test_a_row_that_cannot_be_decided_is_an_error():
    with pytest.raises(EmptySupport, match="model"):
        sample(torch.full((2, 5), -torch.inf))
    with pytest.raises(UnknownStage, match="nope"):
        sample(LOGITS, "nope=1")


def test_what_is_no_logits_no_option_or_without_effect_is_refused_by_name():
    for arguments, options, message in [
        ((LOGITS.numpy(),), {}, "ndarray, not a tensor"),
        ((LOGITS[None],), {}, r"shape \[1, 4, 1000\], not \[V\] or \[R, V\]"),
        ((torch.tensor(1.0),), {}, r"shape \[\]"),
        ((torch.empty(2, 0),), {}, "V above 0"),
        ((LOGITS.to(torch.complex64),), {}, "complex64"),
        ((LOGITS,), {"draw": "gumble"}, "draw is 'gumble'. Did you mean 'gumbel'"),
        ((LOGITS,), {"seed": -1}, "seed is -1"),
        ((LOGITS,), {"seed": 2**64}, "less than 2\\*\\*64"),
        ((LOGITS,), {"position": -1}, "position is -1"),
        ((LOGITS,), {"prompt": [1000]}, "prompt names token 1000, but ids go from 0 to 999"),
        ((LOGITS,), {"output": [3, -1]}, "output names token -1"),
        ((LOGITS, "min_tokens=5"), {}, "min_tokens has no effect"),
        ((LOGITS, "eos_above=0.5"), {}, "eos_above has no effect"),
    ]:
        with pytest.raises(ProcessorsError, match=message):
            sample(*arguments, **options)
    with pytest.raises(ProcessorsError, match="ignore_eos has no effect: eos_ids is empty"):
        LogitsProcessor("ignore_eos=true")


def test_logits_of_a_graph_are_taken_and_rows_without_a_choice_are_not_handed_on():
    assert torch.equal(sample(LOGITS.clone().requires_grad_()), sample(LOGITS))
    ids, broken = torch.tensor([[1], [2], [3], [4]]), LOGITS.clone()
    broken[2, 5] = torch.nan
    with pytest.raises(NonFiniteLogits):
        LogitsProcessor("top_k=5")(ids, broken)
    with pytest.raises(ProcessorsError, match="shape"):
        LogitsProcessor("top_k=5")(ids, LOGITS[0])


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny", dtype="float32") as made:
        yield made


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(find_local("tiny"), dtype=torch.float32)


CHAIN = 'repetition=1.3 | min_tokens=20 | ban=[" fox"]'


def made(llm, chain=CHAIN):
    tokenizer = llm.tokenizer
    return LogitsProcessor(chain, vocabulary=tokenizer, eos_ids=tokenizer.eos_ids, pad_id=0)


def counts(processor, *calls):
    """The logits of id 0 after each call: the stage writes how often its row had id 7 so far."""
    return [processor(torch.tensor(ids), torch.zeros(len(ids), 9))[:, 7].tolist() for ids in calls]


CALLS = [
    ([[[1], [2]], [[1, 7], [2, 3]], [[1, 7, 7], [2, 3, 7]]], [-2, -1]),  # rows go on
    ([[[1], [1]], [[1, 7], [1, 3]], [[1, 3, 4], [1, 7, 4]]], [0, -1]),  # rows change places
    ([[[1], [1]], [[1, 7], [1, 3]], [[1, 7, 4], [1, 7, 7]]], [-1, -2]),  # a row is copied
    ([[[1], [1]], [[1, 7], [1, 3]], [[1, 7, 7]]], [-2]),  # a row ends
    ([[[1], [1]], [[1, 7], [1, 3]], [[1, 7, 2], [1, 3, 7], [1, 3, 5]]], [-1, -1, 0]),  # a row is added
    ([[[1]], [[1, 7]], [[1, 7, 7]], [[1, 5]]], [0]),  # ids are taken back
    ([[[1]], [[1, 7]], [[2, 7, 7]], [[2, 7, 7, 7]]], [-1]),  # a new generation
]


def test_the_output_of_each_row_is_what_the_stages_see():
    for calls, last in CALLS:
        assert counts(LogitsProcessor("frequency=1"), *calls)[-1] == last, calls


@dataclass(frozen=True, slots=True)
class NotingParams(Params):
    """Note what is committed."""

    is_on: bool = param(False, "Whether the stage is on.")


class Noting(Processor[NotingParams]):
    name, phase, Params = "noting", Phase.CONSTRAIN, NotingParams
    committed: ClassVar[list[tuple[int, ...]]] = []

    def commit(self, slot, tokens):
        self.committed.append(tuple(tokens))

    def apply(self, logits, rows):
        return logits


def test_stages_are_advanced_by_the_new_ids_alone():
    registry = Registry(BUILTIN)
    registry.register(Noting)
    processor = LogitsProcessor("noting=true", registry=registry)
    counts(processor, [[1], [1]], [[1, 7], [1, 3]], [[1, 3, 4], [1, 7, 4]], [[1, 7, 4, 5], [1, 7, 4, 6]])
    assert [ids for ids in Noting.committed if ids] == [(7,), (3,), (4,), (4,), (5,), (6,)]


def test_a_tensor_that_is_changed_in_place_is_noticed():
    processor, ids = LogitsProcessor("frequency=1"), torch.tensor([[1, 7], [1, 3]])
    processor(ids[:, :1], torch.zeros(2, 9))
    processor(ids, torch.zeros(2, 9))
    ids[:] = ids.flip(0)
    assert processor(torch.cat([ids, ids[:, :1]], 1), torch.zeros(2, 9))[:, 7].tolist() == [0, -1]


def test_a_second_generation_begins_anew(llm, model):
    given, one = torch.tensor([llm.tokenizer.encode("Once")]), made(llm)
    options = {"do_sample": False, "max_new_tokens": 9, "logits_processor": [one]}
    runs = [model.generate(given, **options) for _ in range(2)]
    assert torch.equal(*runs)


def test_a_processor_prints_its_chain_and_what_it_knows():
    assert repr(LogitsProcessor("repetition=1.2 | min_p=0.05")) == (
        "LogitsProcessor('repetition=1.2 | min_p=0.05')"
    )
    known = LogitsProcessor("min_tokens=3", eos_ids=(2, 7), pad_id=0)
    assert repr(known) == "LogitsProcessor('min_tokens=3', eos_ids=[2, 7], pad_id=0)"

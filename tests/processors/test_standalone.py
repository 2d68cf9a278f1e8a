"""Chains without an engine: the same draws, and the same texts in transformers' own loop."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from gencli import LLM
from gencli.models.files.locate import find_local
from processors import Chain, LogitsProcessor, derive, sample
from processors.errors import EmptySupport, UnknownStage
from processors.reference import samplers
from processors.rng import signed

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


def test_generate_writes_what_the_engine_does(llm, model):
    prompts = ["Once", "The brave dog"]
    ids = [llm.tokenizer.encode(prompt) for prompt in prompts]
    for one, prompt in zip(ids, prompts, strict=True):
        given = torch.tensor([one])
        found = model.generate(given, do_sample=False, max_new_tokens=24, logits_processor=[made(llm)])
        wanted = llm.generate(prompt, chain=CHAIN + " | temperature=0", max_tokens=24)
        assert llm.tokenizer.decode(found[0, len(one) :].tolist()) == wanted.text


def test_beams_that_change_places_are_followed(llm, model):
    given = torch.tensor([llm.tokenizer.encode("Once")])
    kept = made(llm, "repetition=1.3")
    found = model.generate(given, num_beams=3, max_new_tokens=12, logits_processor=[kept])
    fresh = [lambda ids, scores: made(llm, "repetition=1.3")(ids, scores)]
    assert torch.equal(found, model.generate(given, num_beams=3, max_new_tokens=12, logits_processor=fresh))
    assert kept.chain == Chain.parse("repetition=1.3")


def test_a_second_generation_begins_anew(llm, model):
    given, one = torch.tensor([llm.tokenizer.encode("Once")]), made(llm)
    options = {"do_sample": False, "max_new_tokens": 9, "logits_processor": [one]}
    runs = [model.generate(given, **options) for _ in range(2)]
    assert torch.equal(*runs)

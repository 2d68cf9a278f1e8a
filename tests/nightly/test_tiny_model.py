"""The bundled model, for real: its text does not depend on the company it is generated in."""

import functools
import random
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from gencli.core.events import Error, Finish
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.models.hf_runner import HFRunner
from gencli.text.tokenizer import HFTokenizer
from processors.chain import Chain
from processors.errors import ProcessorsError
from processors.rng import derive
from tests.slow.engine.test_engine import random_chain

ASSETS = Path(__file__).parents[2] / "gencli" / "assets"

PROMPTS = [
    "Once upon a time", "Mood: sad\nStory:", "Question: Who is the mayor of Brindle?\nAnswer:",
    "Sentence: Nora is a 41 year old pilot from Quito.\nJSON:", "List: five fruits",
    "One day, {} and a fox went to the market. They",
]  # fmt: skip

CHAINS = [
    "temperature=0", "temperature=0.8", "top_k=40 | top_p=0.9", "repetition=1.2 | min_p=0.05",
    'ban=["the"] | presence=0.4',
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return HFTokenizer.load(ASSETS / "tiny")


def requests(tokenizer, count):
    rng = random.Random(0)
    return [
        Request(
            id=str(i),
            prompt_ids=tuple(
                tokenizer.encode(rng.choice(PROMPTS).format(rng.choice(["Mia", "Otto", "Ben"])))
            ),
            chain=Chain.parse(CHAINS[i % len(CHAINS)]),
            seed=derive(3, i),
            limits=Limits(max_tokens=rng.randint(4, 16)),
        )
        for i in range(count)
    ]


@functools.cache
def model():
    return AutoModelForCausalLM.from_pretrained(ASSETS / "tiny", dtype="float32")


def texts(tokenizer, batch, **options):
    runner = HFRunner(model(), max_lanes=options.get("max_batch", 8))
    engine = Engine(runner, tokenizer, **options)
    for one in batch:
        engine.submit(one)
    ends = [event for event in engine.run() if isinstance(event, Finish | Error)]
    return {end.request: end.text for end in ends}


def check_company(tokenizer, count):
    batch = requests(tokenizer, count)
    alone = texts(tokenizer, batch, max_batch=1)
    assert len(alone) == count
    assert len(set(alone.values())) > count / 2
    assert texts(tokenizer, batch, max_batch=8) == alone
    random.Random(1).shuffle(batch)
    assert texts(tokenizer, batch, max_batch=16, step_tokens=24) == alone
    some = batch[::3]
    assert texts(tokenizer, some, max_batch=5) == {one.id: alone[one.id] for one in some}


def test_64_random_chains_alone_and_in_one_batch(tokenizer):
    rng, batch = random.Random(5), []
    check = Engine(HFRunner(model()), tokenizer)
    prompt = tuple(tokenizer.encode("Once upon a time"))
    while len(batch) < 64:
        one = Request(str(len(batch)), prompt, random_chain(rng), derive(9, len(batch)), limits=Limits(8))
        try:
            check.submit(one)
        except ProcessorsError:  # the kit's texts are not all one token of this vocabulary
            continue
        batch.append(one)
    alone = {key: text for one in batch for key, text in texts(tokenizer, [one], max_batch=1).items()}
    assert texts(tokenizer, batch, max_batch=64) == alone


def test_200_requests_alone_in_batches_shuffled_and_with_other_neighbours(tokenizer):
    check_company(tokenizer, 200)

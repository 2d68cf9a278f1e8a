"""Every request carries its own chain: other stages, orders and values beside it change nothing."""

import random

from gencli.models.other_runners import FakeRunner
from processors.catalog import BUILTIN, Phase
from processors.chain import Chain
from processors.errors import ProcessorsError
from processors.testing.examples import EXAMPLES
from tests.engine.harness import Error, engine, generate, request


def random_chain(rng):
    """Any stages in any sound order: masks first, the rest shuffled every other time."""
    chosen = [spec for spec in BUILTIN if rng.random() < 0.1]
    masks = [spec for spec in chosen if spec.phase == Phase.CONSTRAIN]
    rest = [spec for spec in chosen if spec.phase != Phase.CONSTRAIN]
    if rng.random() < 0.5:
        rng.shuffle(rest)
    return Chain(tuple((spec.name, rng.choice(EXAMPLES[spec.params])) for spec in (*masks, *rest)))


def requests_that_run(rng, count):
    """Requests whose chains fit the byte vocabulary (a text that is not one token is refused)."""
    on, found = engine(runner=FakeRunner(vocab_size=300)), []
    while len(found) < count:
        one = request("the cat sat", key=len(found), chain=random_chain(rng), max_tokens=rng.randint(3, 20))
        try:
            on.submit(one)
        except ProcessorsError:
            continue
        found.append(one)
    return found


def outcome(end):
    return (end.type, end.message) if isinstance(end, Error) else (end.text, end.reason)


def check(seed):
    requests = requests_that_run(random.Random(seed), 64)
    assert len({str(one.chain) for one in requests}) > 55, seed
    alone = {}
    for one in requests:
        alone |= generate([one], runner=FakeRunner(vocab_size=300))
    together = generate(requests, runner=FakeRunner(vocab_size=300, max_lanes=64), max_batch=64)
    expected = {key: outcome(end) for key, end in alone.items()}
    assert {key: outcome(end) for key, end in together.items()} == expected, seed
    assert len({*expected.values()}) > 40, seed


def test_64_random_chains_give_the_same_alone_and_in_one_batch():
    check(0)

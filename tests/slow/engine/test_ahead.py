"""With the next step launched before the last one is read, every event of every step is what it was."""

import random

from gencli.models.fake import FakeRunner
from gencli.runtime.models import ModelChoice, load
from tests.engine.ahead_cases import KINDS, PLAIN, play, random_script
from tests.engine.test_ahead import READ, both, options
from tests.sham import CUDA, sham_device
from tests.speculative.cases import WIDTH


def check_seed(seed):
    rng = random.Random(seed)
    both(random_script(rng, 24, kinds=KINDS if seed % 2 else PLAIN), **options(rng))


def test_random_requests_have_the_same_events_step_by_step():
    for seed in range(4):
        check_seed(seed)


def check_on_a_model(seed):
    rng, runs = random.Random(seed), []
    script, chosen = random_script(rng, 9, kinds=PLAIN), options(rng)
    for is_on in (False, True):
        runner = load(ModelChoice("tiny", dtype="float32")).runner
        runs.append(play(script, runner=runner, run_ahead=is_on, **chosen))
    assert runs[0][0] == runs[1][0], seed
    assert runs[1][1].ahead.num_used, seed


def test_a_model_with_keys_and_values_gives_the_same_events():
    check_on_a_model(0)


def check_waits(seed):
    rng = random.Random(seed)
    script, chosen = random_script(rng, 12, kinds=PLAIN), options(rng)
    here, _ = play(script, run_ahead=False, **chosen)
    with sham_device() as seen:
        there, _ = play(script, runner=FakeRunner(WIDTH, device=CUDA), **chosen)
    assert there == here, seed
    assert seen.waits[READ] == seen.waits.total() <= len(there), seed


def test_on_a_device_no_step_waits_more_than_once():
    check_waits(0)

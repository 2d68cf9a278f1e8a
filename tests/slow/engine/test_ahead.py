"""With the next step launched before the last one is read, every event of every step is what it was."""

import random

from gencli.models.other_runners import FakeRunner
from gencli.runtime.model_loading import ModelChoice, load
from tests.engine.ahead_cases import KINDS, PLAIN, play, random_script
from tests.engine.harness import engine, request, texts
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


class Watched(FakeRunner):
    """Notes how often the host had waited when a pass was launched ahead, and when a step ran plainly."""

    def __init__(self, seen):
        super().__init__(device=CUDA)
        self.seen, self.ahead, self.plain = seen, [], []

    def forward(self, plan):
        self.plain.append(self.seen.waits.total())
        return super().forward(plan)

    def forward_ahead(self, plan, ids):
        self.ahead.append(self.seen.waits.total())
        return super().forward_ahead(plan, ids)


def launches(steps, **options):
    with sham_device() as seen:
        on = engine(runner=FakeRunner(device=CUDA), **options)
        for key in "abc":
            on.submit(request(key, chain="ignore_eos=true | top_p=0.9"))
        for _ in range(3):
            on.step()
        seen.clear()
        for _ in range(steps):
            on.step()
        return sum(seen.launches.values())


def test_the_next_pass_is_launched_before_the_host_waits_for_the_last_draw_and_launches_no_more():
    rows = [request(key, max_tokens=12, chain="ignore_eos=true") for key in "abc"]
    with sham_device() as seen:
        runner = Watched(seen)
        assert texts(rows, runner=runner) == texts(rows)
    assert (runner.plain, runner.ahead) == ([0], [*range(11)])
    assert dict(seen.waits) == {READ: 12}
    assert launches(5) == launches(5, run_ahead=False)

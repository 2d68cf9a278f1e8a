"""Steps that the device runs ahead of the host, and tokens that are taken back."""

import json
from dataclasses import replace

import pytest
import torch

from gencli.core.events import Error, Token
from gencli.core.request import Beams, Drafting, Feed, StepPlan
from gencli.engine.run_ahead import RunAhead, make_ahead
from gencli.engine.scheduler import Scheduler
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from processors.chain import Chain
from processors.request_values import Verification
from processors.stages.masks import MOST_REWINDS, BanParams
from tests.engine.ahead_cases import play
from tests.engine.harness import ends_of, engine, events_of, generate, request, texts
from tests.engine.sequences import sequence
from tests.engine.test_guidance import Remembering
from tests.sham import CUDA, sham_device

READ = ("event", "processors/graphs.py:read")  # the one wait of a step: what it drew


def both(script, **options):
    """The events without the step ahead, which are those with it, and the engine that ran ahead."""
    plain, _ = play(script, run_ahead=False, **options)
    ahead, on = play(script, run_ahead=True, **options)
    assert ahead == plain
    return plain, on


def options(rng):
    return {"max_batch": rng.choice((3, 4, 8)), "step_tokens": rng.choice((8, 40, None))}


def test_most_steps_of_plain_requests_are_launched_ahead():
    plain, on = both({0: [("submit", request(key, max_tokens=30, chain="ignore_eos=true")) for key in "abc"]})
    assert (len(plain), on.ahead.num_launched, on.ahead.num_used) == (30, 29, 29)


def test_a_text_that_finds_no_token_fails_alone():
    stuck = request("x", chain='allowed=[97] | ban=["aaa"]')
    plain, on = both({0: [("submit", stuck), ("submit", request("y", max_tokens=9))]})
    failed = [event for step in plain for event in step if isinstance(event, Error)]
    assert [(event.request, event.text) for event in failed] == [("x", "aa")]
    assert on.ahead.num_used == 8


def test_an_interruption_gives_the_texts_so_far():
    for number in (1, 7, 30):
        found = []
        for is_on in (False, True):
            on, events = engine(run_ahead=is_on), []
            for key in "abc":
                on.submit(request(key))
            for event in on.run():
                events.append((event.request, getattr(event, "text", "")))
                if len(events) == number:
                    on.interrupt()
            found.append(events)
        assert found[0] == found[1], number


class Full(FakeRunner):
    """Has no memory for a pass beside what a step holds."""

    tried = 0

    def forward_ahead(self, plan, ids):
        self.tried += 1
        raise MemoryError


def test_where_the_memory_is_too_small_for_it_no_step_runs_ahead_and_texts_stay():
    rows = [request(key) for key in "abc"]
    runner = Full()
    on = engine(runner=runner, run_ahead=True)
    assert texts(rows, on=on) == texts(rows)
    assert (runner.tried, on.ahead.num_launched) == (2, 0)
    assert on.notices == ["The memory has no room for steps ahead: from now on each step is read first."]
    rows = [request(f"Row {n}", max_tokens=5 + n, chain="temperature=0.9") for n in range(9)]
    for lanes in (1, 3, 5):
        assert texts(rows, runner=FakeRunner(memory_lanes=lanes), run_ahead=True) == texts(rows), lanes


class Serial(FakeRunner):
    """Takes tokens of the host only."""

    def __init__(self):
        super().__init__()
        self._spec = replace(self._spec, can_run_ahead=False)


def test_it_is_on_for_a_gpu_alone_unless_it_is_asked_for():
    assert make_ahead(FakeRunner(), None) is make_ahead(FakeRunner(), False) is None
    assert isinstance(make_ahead(FakeRunner(), True), RunAhead)
    with sham_device():
        assert isinstance(make_ahead(FakeRunner(device=CUDA), None), RunAhead)
        assert make_ahead(FakeRunner(device=CUDA), False) is None
    assert make_ahead(Serial(), None) is None
    with pytest.raises(UsageError, match="fake:258:0 takes no tokens that the host has not read"):
        make_ahead(Serial(), True)


def test_guesses_that_come_untrue_end_until_they_would_have_come_true():
    inner, launched = FakeRunner(), []
    runner, scheduler = RunAhead(inner), Scheduler(max_batch=1, step_tokens=None)
    for number in range(60):
        one = sequence(range(number + 1), slot=0, computed=number + 1)
        scheduler.running = [one]
        runner.forward(StepPlan((Feed(0, number, (number,)),)))
        before = runner.num_launched
        runner.launch([(one, ())], torch.tensor([[number + 1]]), scheduler)
        runner.read([[number + 1 if not 20 <= number < 30 else 99]])
        launched.append(runner.num_launched > before)
    assert all(launched[:20])
    assert launched[20:40].count(False) > 10
    assert all(launched[45:])


LETTERS = f"allowed=[{','.join(str(byte) for byte in b'abcdef ')}]"
SEEDS, WORDS, FREE = range(4), ("ab", "ec", "dad"), Chain.parse(LETTERS)


def ban(texts, **rest):
    return BanParams(tuple(texts), rewind=True, **rest)


def asked(texts, *, seed=0, prompt="Hello", chain=LETTERS, max_tokens=60, grammar=None, **rest):
    one = request(prompt, seed=seed, key=f"{seed} {prompt} {texts}", max_tokens=max_tokens, **rest)
    stages = (*Chain.parse(chain).stages, ("ban", ban(texts)), *((("grammar", grammar),) if grammar else ()))
    return replace(one, chain=Chain(stages))


def run(requests, **options):
    """The text of each sample, which is that of its Token events joined."""
    events, streamed = events_of(requests, **{"runner": Remembering()} | options), {}
    for event in events:
        if isinstance(event, Token):
            key = event.request, event.sample
            streamed[key] = streamed.get(key, "") + event.text
    ends = ends_of(events)
    assert {key: end.text for key, end in ends.items()} == {key: streamed.get(key, "") for key in ends}
    return ends


def text(one, **options):
    return run([one], **options)[one.id, 0].text


def test_after_many_ways_back_the_texts_are_masked():
    firsts = bytes(range(40, 40 + 2 * MOST_REWINDS)).decode().replace("a", "")
    texts = tuple(first + "a" for first in firsts)
    likely = f'allowed={json.dumps([*firsts.encode(), 97, 122])} | bias={{"97":99,"122":50}}'
    one = asked(texts, chain=f"{likely}", max_tokens=10, prompt="z")
    runner = Remembering()
    found = text(one, runner=runner)
    assert not any(banned in found for banned in texts)
    assert len(found) == 10
    assert runner.steps <= 10 * (MOST_REWINDS + 2)


def test_what_cannot_go_back_is_refused_and_where_every_id_is_banned_the_error_names_ban():
    rejecting = Drafting(tokens=2, verification=Verification("rejection"))
    for change in ({"beams": Beams(2), "n": 1}, {"drafting": rejecting}):
        with pytest.raises(UsageError, match="A ban with rewind and .* do not go together"):
            engine().submit(replace(asked(("a",)), **change))
    one = asked(("a", "b", "c"), chain="allowed=[97,98,99]")
    error = generate([one])[one.id, 0]
    assert "No token is left to choose from" in error.message
    assert "ban" in error.message

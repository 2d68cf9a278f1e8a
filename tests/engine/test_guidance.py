"""Guided requests and requests that contrast layers: the formula, in every company."""

import re
from dataclasses import replace
from itertools import product

import pytest
import torch
import transformers as hf

from gencli.core.request import Feed, Guidance, LayerContrast, StepPlan
from gencli.engine.guidance import candidates
from gencli.errors import UsageError
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.model_runner import ModelSpec
from gencli.models.other_runners import FakeRunner
from processors.sampler import fold
from tests.engine.harness import engine, events_of, generate, ids_of, request, texts
from tests.models.native import native_decoder
from tests.models.tiny_models import base

COLD = tuple(b"cold ")
GUIDED = Guidance(1.7, COLD)
PROMPTS = ["Hello", "the cat sat on", "a", "one two three one two"]


class Remembering(FakeRunner):
    """Logits depend on all that a lane holds, so that a wrong token anywhere in it shows."""

    def __init__(self, seed=0, **options):
        super().__init__(seed=seed, **options)
        self.lanes, self.num_fed, self.steps = {}, 0, 0

    def forward(self, plan):
        logits, row = super().forward(plan), 0
        self.num_fed, self.steps = self.num_fed + plan.num_tokens, self.steps + 1
        for feed in plan.feeds:
            held = self.lanes.setdefault(feed.lane, [])
            assert len(held) == feed.start
            held += feed.tokens
            for size in range(len(held) - feed.num_logits + 1, len(held) + 1):
                logits[row] += self.table[sum((i + 1) * t for i, t in enumerate(held[:size])) % 258]
                row += 1
        return logits

    def truncate(self, lane, length):
        super().truncate(lane, length)
        self.lanes.setdefault(lane, [])[length:] = []

    def fork(self, source, target):
        super().fork(source, target)
        self.lanes[target] = [*self.lanes.get(source, [])]

    def release(self, lane):
        self.lanes[lane] = []
        super().release(lane)


CUT = "ignore_eos=true | repetition=1.3 | temperature=1.3 | top_p=0.9"


def guided(text="Hello", guidance=GUIDED, **rest):
    return request(text, guidance=guidance, **rest)


def run(requests, **options):
    return texts(requests, runner=options.pop("runner", None) or Remembering(), **options)


def by_hand(one, steps=24):
    """Greedy ids of a guided request from two separate lanes, a token at a time."""
    runner, found = Remembering(), []
    prompts = one.prompt_ids, one.guidance.companion_prompt(one.prompt_ids)
    for _ in range(steps):
        runner.release(0), runner.release(1)
        c, u = (runner.forward(StepPlan((Feed(i, 0, (*p, *found)),))) for i, p in enumerate(prompts))
        found.append(fold(c, u, torch.tensor([one.guidance.scale]), torch.tensor([0.0])).argmax().item())
    return tuple(found)


def ids(one, **options):
    return ids_of(events_of([one], runner=Remembering(), **options))[one.id, 0]


def test_a_guided_text_is_the_one_of_two_separate_lanes():
    for guidance in (GUIDED, Guidance(0.0, COLD), Guidance(3.0), Guidance(0.5, (1, 2) * 90)):
        one = guided(guidance=guidance, draw="greedy")
        assert ids(one) == by_hand(one), guidance


SEVERAL = (GUIDED, Guidance(), Guidance(2.5), Guidance(0.3, (7,) * 150), Guidance(1.4, COLD * 40))
MIXED = [
    guided(text, guidance=guidance, key=f"{n}", n=1 + n % 2)
    for n, (text, guidance) in enumerate(product(PROMPTS, SEVERAL))
]


def test_the_negative_prompt_is_read_once_for_samples_rows_and_those_that_follow():
    long = Guidance(2.0, tuple(range(200)))
    runner = Remembering()
    rows = [guided(text, guidance=long, key=text, max_tokens=2) for text in PROMPTS]
    found = run(rows, runner=runner, max_batch=2)
    assert runner.num_fed < 300
    assert found == {key: text for one in rows for key, text in run([one]).items()}
    runner = Remembering()
    run([guided(guidance=long, n=4, max_tokens=2)], runner=runner)
    assert runner.num_fed < 300


def test_what_a_full_memory_interrupts_begins_again():
    assert run(MIXED[:6], runner=Remembering(memory_lanes=5)) == run(MIXED[:6])


def test_an_interrupt_leaves_room_for_the_next():
    on = engine(runner=Remembering(), max_batch=2)
    for text in PROMPTS:
        on.submit(guided(text, key=text))
    events = on.run()
    next(events)
    on.interrupt()
    list(events)
    assert generate([guided()], on=on)["Hello", 0].text == run([guided()])["Hello", 0]


def test_the_text_ends_where_the_companion_has_no_room():
    one = guided(guidance=Guidance(2.0, (1,) * 40), max_tokens=99, chain=CUT)
    end = generate([one], runner=Remembering(context=60))["Hello", 0]
    assert (end.completion_tokens, end.matched) == (20, "context")


def test_an_amateur_reads_the_same_text():
    for scale in (1.0, 1.5, 3.0):
        guidance = Guidance(scale, cutoff=0.1, amateur="small")
        one = guided(guidance=guidance, draw="greedy")
        expert, amateur, found = Remembering(), Remembering(seed=5), []
        for _ in range(24):
            expert.release(0), amateur.release(0)
            plan = StepPlan((Feed(0, 0, (*one.prompt_ids, *found)),))
            levels = torch.tensor([scale]), torch.tensor([0.1])
            found.append(fold(expert.forward(plan), amateur.forward(plan), *levels).argmax().item())
        assert ids(one, amateurs={"small": Remembering(seed=5)}) == tuple(found), scale


def test_what_cannot_be_guided_is_refused():
    for guidance, said in (
        (Guidance(-0.5), "has scale -0.5"),
        (Guidance(2.0, cutoff=1.5), "and cutoff 1.5"),
        (Guidance(2.0, ()), "negative prompt is empty"),
        (Guidance(2.0, (1,) * 2000), "has 2000 tokens"),
        (Guidance(2.0, (999,)), "Token id 999"),
        (Guidance(2.0, amateur="other"), "The amateur 'other'"),
    ):
        with pytest.raises(UsageError, match=said):
            engine().submit(guided(guidance=guidance))


LOW = LayerContrast("low")


def spec(count, *, is_tied=False):
    cpu = torch.device("cpu")
    return ModelSpec("m", 10, 100, cpu, torch.float32, num_layers=count, is_tied=is_tied)


def test_the_candidates_are_those_of_the_published_code():
    for layers, of, found in (
        ("low", spec(32), tuple(range(0, 16, 2))),
        ("low", spec(32, is_tied=True), tuple(range(2, 16, 2))),
        ("low", spec(2, is_tied=True), (1,)),
        ("high", spec(32), tuple(range(16, 32, 2))),
        ("high", spec(48), tuple(range(28, 48, 2))),
        ("low", spec(48), tuple(range(0, 20, 2))),
        ((6, 2, 6), spec(8), (2, 6)),
    ):
        assert candidates(layers, of) == found, (layers, of, found)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    config = hf.LlamaConfig(**base(vocab_size=258, num_hidden_layers=6, initializer_range=0.15))
    return hf.AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture(scope="module")
def runner(model):
    return DecoderRunner(native_decoder(model), max_lanes=16)


def asked(text, dola=LOW, **options):
    return request(text, dola=dola, chain="ignore_eos=true", max_tokens=12, jump="off", **options)


def test_what_cannot_be_is_refused(runner):
    for on, one, said in (
        (runner, asked("a", LayerContrast((6,))), "names the layers (6,)"),
        (runner, asked("a", LayerContrast("low", 2.0)), "The cutoff of `dola` is 2"),
        (runner, replace(asked("a"), guidance=Guidance(2.0)), "guidance and `dola`"),
        (None, asked("a"), "fake:258:0 gives no logits of its layers"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            engine(runner=on).submit(one)

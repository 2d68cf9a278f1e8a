"""Long-rope models in the engine: each text is that of fresh passes, in any company."""

from functools import cache
from itertools import product

import torch

from gencli.core.events import Error, Finish, Token
from gencli.core.request import Beams, Guidance, Limits, Request
from gencli.engine.engine import Engine
from gencli.models.hf import HFRunner
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.ngram import NgramDrafter
from gencli.speculative.suffix import SuffixDrafter
from gencli.text.tokenizer import ByteTokenizer
from processors.chain import Chain
from tests.engine.harness import ends_of, events_of, ids_of
from tests.models.fresh import FreshRunner
from tests.models.tiny_models import SWITCH, VOCAB, long_rope

COUNT = 10
LENGTHS = (30, SWITCH - 3, SWITCH, SWITCH + 1, 70, 90)
_NOISE = torch.Generator().manual_seed(7)
# All begin alike, and go on by repeating themselves, so that drafters have something to say.
_HEAD, _WORD = (torch.randint(3, VOCAB, (size,), generator=_NOISE).tolist() for size in (20, 7))
PROMPTS = [tuple([*_HEAD, length, *_WORD * 15][:length]) for length in LENGTHS]

torch.set_num_threads(1)


@cache
def model():
    return long_rope("phi3")


def requests(**rest):
    chain = Chain.parse("temperature=0.7")
    return [
        Request(str(number), prompt, chain=chain, seed=number, limits=Limits(COUNT), **rest)
        for number, prompt in enumerate(PROMPTS)
    ]


def run(runner, asked, *, max_batch=8, **options):
    """Ids by request and sample."""
    events = events_of(asked, on=Engine(runner, ByteTokenizer(), max_batch=max_batch, **options))
    assert not [event for event in events if isinstance(event, Error)]
    return dict.fromkeys(ends_of(events), ()) | ids_of(events)


def runner(max_lanes=16):
    return HFRunner(model(), max_lanes=max_lanes)


@cache
def expected(**rest):
    return run(FreshRunner(model()), requests(**rest), max_batch=1, share_prefixes=False)


def drafter(name):
    if name == "model":
        return ModelDrafter(HFRunner(long_rope("llama", SWITCH + 3), max_lanes=8))
    if name == "early-exit":
        return ModelDrafter(runner().first_layers(1, max_lanes=8))
    return {"ngram": NgramDrafter, "suffix": SuffixDrafter}[name]() if name else None


def check(draft, step_tokens, max_batch):
    options = {"max_batch": max_batch, "step_tokens": step_tokens, "drafter": drafter(draft)}
    assert run(runner(), requests(), **options) == expected(), (draft, step_tokens, max_batch)


def check_companions(step_tokens, negative):
    guidance = Guidance(1.5, negative=negative)
    found = run(runner(), requests(guidance=guidance), step_tokens=step_tokens, drafter=NgramDrafter())
    assert found == expected(guidance=guidance), (step_tokens, negative)


NEGATIVES = (tuple(_HEAD[:5]), (*_HEAD, *_WORD * 4), None)


def test_texts_are_those_of_fresh_passes():
    for case in (
        ("", 16, 3),
        ("ngram", None, 8),
        ("suffix", 16, 1),
        ("model", 16, 8),
        ("early-exit", None, 3),
    ):
        check(*case)


def test_texts_are_those_of_fresh_passes_with_each_drafter_and_batch():
    for case in product(("", "ngram", "suffix", "model", "early-exit"), (16, None), (1, 3, 8)):
        check(*case)
    for case in product((16, None), NEGATIVES):
        check_companions(*case)


def test_samples_and_companions_cross_the_switch_by_themselves():
    found = run(runner(), requests(n=3), max_batch=4, step_tokens=16)
    assert found == expected(n=3)
    check_companions(16, NEGATIVES[1])
    check_companions(None, None)


def test_beams_cross_the_switch_together():
    fresh = run(FreshRunner(model()), requests(beams=Beams(3), n=3), max_batch=3)
    assert run(runner(), requests(beams=Beams(3), n=3)) == fresh


def test_turns_of_a_session_cross_the_switch():
    chain = Chain.parse("temperature=0")
    for one in (runner(), FreshRunner(model())):
        on, texts, prompt = Engine(one, ByteTokenizer(), max_batch=2), [], PROMPTS[0]
        for turn in range(5):
            on.submit(Request(str(turn), prompt, chain=chain, limits=Limits(5), session="a"))
            ids = [i for event in on.run() if isinstance(event, Token) for i in event.ids]
            texts.append(ids)
            prompt = (*prompt, *ids, 7, 8, 9)
        if isinstance(one, HFRunner):
            found = texts
    assert len(prompt) > SWITCH + 10
    assert found == texts


class Counted(HFRunner):
    """Notes how many tokens each step feeds, and how much of a text is copied between lanes."""

    def __init__(self):
        super().__init__(model(), max_lanes=16)
        self.steps = []
        hook = lambda module, args, out: self.steps.append(args[0].numel())  # noqa: E731
        self.hook = model().model.embed_tokens.register_forward_hook(hook)


def test_a_lane_is_read_anew_in_steps_as_a_prompt_is():
    for max_batch in (1, 8):
        on = Counted()
        run(on, requests(), max_batch=max_batch, step_tokens=16)
        on.hook.remove()
        assert max(on.steps) <= 16, max_batch


def test_a_beginning_is_copied_on_one_side_of_the_switch_only():
    head = (*_HEAD, *_WORD * 3)
    asked = [Request(str(n), (*head, 5, *_WORD * n), limits=Limits(2)) for n in (0, 2, 0, 2)]
    engine = Engine(runner(), ByteTokenizer(), max_batch=4)
    for number, one in enumerate(asked):
        engine.submit(Request(str(number), one.prompt_ids, limits=Limits(2)))
    ends = {event.request: event.cached_tokens for event in engine.run() if isinstance(event, Finish)}
    assert [ends[str(number)] > 0 for number in range(4)] == [False, False, True, True]

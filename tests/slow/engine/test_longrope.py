"""Long-rope models in the engine: each text is that of fresh passes, in any company."""

from functools import cache

import torch

from gencli.core.request import Beams, Guidance
from gencli.models.hf_runner import HFRunner
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.drafter import NgramDrafter, SuffixDrafter
from tests.engine.test_longrope import _HEAD, _WORD, model, requests, run, runner
from tests.models.fresh import FreshRunner
from tests.models.tiny_models import SWITCH, long_rope

torch.set_num_threads(1)


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


def test_beams_cross_the_switch_together():
    fresh = run(FreshRunner(model()), requests(beams=Beams(3), n=3), max_batch=3)
    assert run(runner(), requests(beams=Beams(3), n=3)) == fresh


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

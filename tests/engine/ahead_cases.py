"""Random requests, arrivals and cancellations, and what an engine tells of them step by step."""

import time
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import count

import pytest

from gencli.core.request import Beams, Contrastive, Drafting, Guidance, Limits, Verification
from gencli.errors import GencliError
from gencli.models.other_runners import FakeRunner
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.drafter import NgramDrafter
from processors.chain import Chain
from processors.errors import ProcessorsError
from processors.stages.grammar_stage import GrammarParams
from processors.stages.masks import BanParams
from tests.engine.harness import engine, request
from tests.speculative.cases import LETTERS, WIDTH, everything

KINDS = (
    {}, {}, {}, {}, {"n": 3}, {"n": 2, "best_of": 4}, {"logprobs": 2}, {"logprobs": 0, "prompt_logprobs": 1},
    {"session": "one"}, {"session": "two"}, {"prefix": tuple(b"dad")}, {"given": tuple(b"cabbage")},
    {"trace": 2}, {"beams": Beams(3)}, {"contrastive": Contrastive(0.6, 3)}, {"finish_open": True},
    {"guidance": Guidance(1.5, tuple(b"cold"))}, {"drafting": Drafting("ngram", 3)}, {"priority": -1},
    {"drafting": Drafting("ngram", 2, verification=Verification("rejection"))},
)  # fmt: skip
REWINDING = Chain((*Chain.parse(LETTERS).stages, ("ban", BanParams(("ab", "cab", "dd"), rewind=True))))
GRAMMAR = Chain((("grammar", GrammarParams('\\[("[a-d]+", ){2,4}1\\]', kind="regex")),))
SHARED = ("", "", "", "a prompt that others begin with " * 2, "long " * 30)

PLAIN = ({}, {"n": 3}, {"logprobs": 2}, {"session": "one"}, {"n": 2, "best_of": 4})


@cache
def cases():
    return everything()


def random_request(rng, number, kinds):
    """A request of one of these kinds. Some contradict themselves and are refused."""
    base, kind = rng.choice(cases()), rng.choice(kinds)
    chain = rng.choice((base.chain, Chain.parse(LETTERS), Chain.parse(LETTERS), REWINDING, GRAMMAR))
    prompt, most = rng.choice(SHARED) + rng.choice(("abc", "the cat", "ab" * 9)), rng.choice((1, 2, 9, 30))
    limits = Limits(most, rng.choice((None, None, None, 40, 200)))
    plain = request(prompt, key=number, seed=number, chain=chain, limits=limits)
    jump = rng.choice(("auto", "off"))
    return replace(plain, stops=base.stops, draw=base.draw, jump=jump, **kind)


def random_script(rng, size, *, kinds=KINDS):
    """What happens before which step: requests arrive, and some are cancelled."""
    script, step = defaultdict(list), 0
    for number in range(size):
        step += rng.choice((0, 0, 1, 3, 9))
        script[step].append(("submit", random_request(rng, number, kinds)))
        if rng.random() < 0.2:
            script[step + rng.randint(1, 12)].append(("cancel", str(number)))
    if rng.random() < 0.3:
        script[step + rng.randint(1, 9)].append(("end_waiting", None))
    return script


def play(script, **options):
    """The events of each step, and the engine. Each look at the clock takes a second."""
    drafter = AdaptiveDrafter(NgramDrafter(), name="ngram", clock=count().__next__)
    runner = options.pop("runner", None) or FakeRunner(WIDTH)
    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", count().__next__)
        on = engine(runner=runner, drafter=drafter, clock=count().__next__, **options)
        while len(told) <= max(script) or on.has_work:
            told.append([*_acted(on, script.get(len(told), ())), *on.step()])
    return told, on


def _acted(on, actions):
    """The events of what happens before a step, and the messages of what was refused."""
    for what, value in actions:
        try:
            yield from getattr(on, what)(*([] if value is None else [value])) or ()
        except (GencliError, ProcessorsError) as error:
            yield str(error)

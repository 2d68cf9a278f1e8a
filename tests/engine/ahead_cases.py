"""Random requests, arrivals and cancellations, and what an engine tells of them step by step."""

from collections import defaultdict
from dataclasses import replace
from itertools import count

from gencli.core.events import Finish
from gencli.core.request import Beams, Contrastive, Drafting, Guidance, Verification
from gencli.errors import GencliError
from gencli.models.fake import FakeRunner
from gencli.speculative.adaptive import AdaptiveDrafter
from gencli.speculative.ngram import NgramDrafter
from processors.catalog import GrammarParams
from processors.catalog.constrain import BanParams
from processors.chain import Chain
from processors.errors import ProcessorsError
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
CASES = everything()


def random_request(rng, number):
    """A request of any kind. Some contradict themselves and are refused."""
    base, kind = rng.choice(CASES), rng.choice(KINDS)
    chain = rng.choice((base.chain, Chain.parse(LETTERS), Chain.parse(LETTERS), REWINDING, GRAMMAR))
    prompt, most = rng.choice(SHARED) + rng.choice(("abc", "the cat", "ab" * 9)), rng.choice((1, 2, 9, 30))
    plain = request(prompt, key=number, seed=number, chain=chain, max_tokens=most)
    jump = rng.choice(("auto", "off"))
    return replace(plain, stops=base.stops, draw=base.draw, jump=jump, **kind)


def random_script(rng, size):
    """What happens before which step: requests arrive, and some are cancelled."""
    script, step = defaultdict(list), 0
    for number in range(size):
        step += rng.choice((0, 0, 1, 3, 9))
        script[step].append(("submit", random_request(rng, number)))
        if rng.random() < 0.2:
            script[step + rng.randint(1, 12)].append(("cancel", str(number)))
    if rng.random() < 0.3:
        script[step + rng.randint(1, 9)].append(("end_waiting", None))
    return script


def play(script, *, runner=None, **options):
    """The events of each step without times, and the engine."""
    drafter = AdaptiveDrafter(NgramDrafter(), name="ngram", clock=count().__next__)
    runner = runner or FakeRunner(WIDTH)
    on = engine(runner=runner, drafter=drafter, clock=count().__next__, **options)
    told, number = [], 0
    while number <= max(script) or on.has_work:
        events = []
        for what, value in script.get(number, ()):
            try:
                found = getattr(on, what)(*([] if value is None else [value]))
                events += found or ()
            except (GencliError, ProcessorsError) as error:
                events.append(str(error))
        told.append([untimed(event) for event in (*events, *on.step())])
        number += 1
    return told, on


def untimed(event):
    return replace(event, timings=None) if isinstance(event, Finish) else event

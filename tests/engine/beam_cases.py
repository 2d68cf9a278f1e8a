"""Runs searches on the fake model; what the tests of beams are written with."""

from gencli.core.events import Error
from gencli.core.request import Beams
from gencli.engine.engine import Engine
from gencli.models.other_runners import FakeRunner
from tests.engine.harness import TOKENIZER, ends_of, events_of
from tests.engine.harness import request as any_request

LETTERS = "allowed=[97,98,99,100,101,32,257]"


def request(text="Hello", *, width=4, penalty=1.0, early=False, chain=LETTERS, **rest):
    """A request for a search among a few letters."""
    return any_request(text, chain=chain, beams=Beams(width, penalty, early), **rest)


def engine(**options):
    """An engine on a fake model; `runner` replaces the model."""
    runner = options.pop("runner", None) or FakeRunner(258, eos_ids=TOKENIZER.eos_ids)
    return Engine(runner, TOKENIZER, **options)


def search(requests, *, on=None, **options):
    """Final events by (request id, sample)."""
    return ends_of(events_of(requests, on=on or engine(**options)))


def texts(requests, **options):
    """Candidates as (text, score) by request id, and errors as their message."""
    found = {}
    for (name, _), end in search(requests, **options).items():
        is_error = isinstance(end, Error)
        found[name] = end.message if is_error else [(c.text, round(c.score, 9)) for c in end.candidates]
    return found

"""Runs requests on the fake model; what the engine's tests are written with."""

from gencli.core.events import Error, Finish, Token
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.models.other_runners import FakeRunner
from gencli.speculative.drafter import Drafter
from gencli.text.tokenizer import ByteTokenizer
from processors.chain import Chain
from processors.rng import derive

TOKENIZER = ByteTokenizer()


def request(text="Hello", *, key=None, seed=0, chain="", max_tokens=24, **rest):
    """A request with a chain in text form; its row key is its prompt unless one is given."""
    key = text if key is None else key
    return Request(
        id=str(key),
        prompt_ids=tuple(TOKENIZER.encode(text)),
        chain=Chain.parse(chain) if isinstance(chain, str) else chain,
        seed=derive(seed, key),
        limits=rest.pop("limits", Limits(max_tokens=max_tokens)),
        **rest,
    )


def engine(**options):
    """An engine on a fake model; `runner` and `tokenizer` replace the model."""
    runner = options.pop("runner", None) or FakeRunner()
    return Engine(runner, options.pop("tokenizer", TOKENIZER), **options)


def events_of(requests, *, on=None, **options):
    """All events, in their order."""
    on = on or engine(**options)
    for one in requests:
        on.submit(one)
    return list(on.run())


def ids_of(events):
    """Ids by (request id, sample)."""
    found = {}
    for event in events:
        if isinstance(event, Token):
            key = event.request, event.sample
            found[key] = (*found.get(key, ()), *event.ids)
    return found


def ends_of(events):
    """Final events by (request id, sample)."""
    return {(event.request, event.sample): event for event in events if isinstance(event, Finish | Error)}


def generate(requests, **options):
    """Final events of a run by (request id, sample)."""
    return ends_of(events_of(requests, **options))


def texts(requests, **options):
    """Final texts by (request id, sample)."""
    return {key: end.text for key, end in generate(requests, **options).items()}


class Watched(FakeRunner):
    """Keeps the plan of each pass."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.plans = []

    def forward(self, plan):
        self.plans.append(plan)
        return super().forward(plan)


class Scripted(Drafter):
    """A drafter that proposes a known continuation, with every third guess wrong."""

    def __init__(self, answers, most=4):
        self.answers, self.most, self.proposed = answers, most, 0

    def propose(self, asks):
        runs = [self._run(ask.tokens, ask.most) for ask in asks]
        self.proposed += sum(map(len, runs))
        return runs

    def _run(self, tokens, most):
        for prompt, output in self.answers.items():
            known = (*prompt, *output)
            if len(tokens) < len(known) and known[: len(tokens)] == tuple(tokens):
                run = list(known[len(tokens) :][: min(most, self.most)])
                if len(tokens) % 3 == 0:
                    run[-1] = (run[-1] + 1) % 256
                return run
        return ()

"""A model and a drafter with simulated time, in units of a plain step of one text."""

from dataclasses import dataclass, field

from gencli.models.other_runners import FakeRunner
from gencli.speculative.drafter import Drafter


@dataclass
class Ticking:
    """A clock that only `move` advances."""

    now: float = 0.0
    moves: list = field(default_factory=list)

    def __call__(self):
        return self.now

    def move(self, seconds):
        self.now += seconds


class TimedRunner(FakeRunner):
    """A model whose forward pass takes 1, and `row` for each token beyond one per text."""

    def __init__(self, clock, *, row=0.0, **options):
        super().__init__(**options)
        self._clock, self._row, self.passes = clock, row, 0

    def forward(self, plan):
        self.passes += 1
        self._clock.move(1 + self._row * (plan.num_tokens - len(plan.feeds)))
        return super().forward(plan)


class TimedDrafter(Drafter):
    """Knows the texts; a share `right` of its draft tokens is correct. Each forward pass takes `cost`."""

    is_autoregressive = True

    def __init__(self, answers, clock, *, right=1.0, cost=0.1):
        self._answers, self._clock, self.right, self._cost = answers, clock, right, cost
        self._errors = 0.0
        self.asked = []

    def propose(self, asks):
        self._clock.move(self._cost * max((ask.most for ask in asks), default=0))
        self.asked += [(len(ask.tokens), ask.most) for ask in asks]
        return [self._run(tuple(ask.tokens), ask.most) for ask in asks]

    def _run(self, tokens, most):
        for known in self._answers:
            if known[: len(tokens)] == tokens:
                rest = known[len(tokens) :][:most]
                return [self._guess(token) for token in rest] or [0] * most
        return [0] * most

    def _guess(self, token):
        self._errors += 1 - self.right
        if self._errors < 1:
            return token
        self._errors -= 1
        return (token + 1) % 256

"""An explanation says what the stages did; who decided is who, left out of a fresh run, changes the token."""

import math

import pytest
import torch

from processors.catalog import BUILTIN
from processors.chain import Chain, check_together
from processors.errors import ChainError
from processors.explain_rows import explain_rows
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import Sampler
from processors.testing.checks import TEXTS, toy_env
from processors.testing.examples import EXAMPLES

ENV = toy_env()


def random_chain(rng):
    """A chain whose stages go together; a temperature beside one that varies it is a value of that one."""
    while True:
        chosen = [spec for spec in BUILTIN if rng.random() < 0.15]
        chain = Chain(tuple((spec.name, rng.choice(EXAMPLES[spec.params])) for spec in chosen))
        if len(chain.active().stages) < len(chain.stages):
            continue
        try:
            check_together(chain)
        except ChainError:
            continue
        return chain


class Run:
    """Rows of one text each, with chains and draws of their own."""

    def __init__(self, chains, draws, texts, seeds=None):
        self.pipeline, self.sampler, self.history = Pipeline(ENV), Sampler(), History()
        self.chains, self.draws = chains, draws
        for slot, (chain, draw, text) in enumerate(zip(chains, draws, texts, strict=True)):
            self.history.admit(slot, text.prompt, seed=17 * (seeds[slot] if seeds else slot))
            self.pipeline.admit(slot, chain, text.admission)
            self.sampler.admit(slot, draw)
            self.history.append([slot], [text.output])
            self.pipeline.commit(slot, text.output)
        self.rows = self.pipeline.prepare(Rows.build(self.history, range(len(chains))))

    def tokens(self, logits):
        return self.sampler(self.pipeline(logits, self.rows), self.rows)

    def explained(self, logits, tokens):
        return explain_rows(self.pipeline, self.sampler, logits, self.rows, tokens, self.draws)


def explained(text, row, *, draw="gumbel", output=()):
    """The explanation of one row and a chain in text form."""
    run = Run([Chain.parse(text)], [draw], [TEXTS[0]])
    logits = torch.full((1, ENV.vocab_size), -math.inf)
    logits[0, : len(row)] = torch.tensor(row)
    return run.explained(logits, run.tokens(logits))[0]


def test_a_stage_says_what_it_kept_and_what_it_removed():
    view = explained("temperature=0.5 | top_k=2", [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)], draw="greedy")
    cut = view.stages[1]
    assert (cut.name, cut.alive, cut.acted) == ("top_k", (4, 2), True)
    assert [token for token, _ in cut.removed] == [2, 3]
    assert cut.mass_kept == pytest.approx((0.16 + 0.09) / 0.3)
    assert (view.raw.rank, view.token) == (1, 0)
    assert view.surprise == pytest.approx(-math.log2(0.4))


def test_the_runner_up_is_next_and_the_margin_is_how_far_behind():
    view = explained("", [3.0, 2.5, 1.0], draw="greedy")
    assert (view.race.runner_up, view.race.margin) == (1, 0.5)
    assert explained("top_k=1", [3.0, 2.5, 1.0]).race.runner_up is None


def test_a_penalty_says_which_logits_it_moved():
    view = explained('bias={"5": 2.5}', [0.0] * 8, draw="greedy")
    assert view.stages[0].changed == ((5, 0.0, 2.5),)
    assert view.decided_by == ("bias",)


def test_stages_say_what_the_logits_do_not_show():
    row = [1.0, 0.9, 0.8, 0.7]
    notes = {stage.name: stage.note for stage in explained("temperature=0.5 | mirostat=2", row).stages}
    assert notes["mirostat"] == "mu 10.00 bits"
    assert notes["temperature"].startswith("entropy 1.3")
    rolled = explained("xtc:probability=0.5,threshold=0.1", row).stages[0]
    assert rolled.note.startswith("rolled 0.")
    assert rolled.note.endswith(", acts below 0.5")
    assert rolled.acted == (float(rolled.note.split()[1].rstrip(",")) < 0.5)

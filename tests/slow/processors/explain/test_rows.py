"""An explanation says what the stages did; who decided is who, left out of a fresh run, changes the token."""

import math
import random

import pytest

from processors.catalog import BUILTIN, Phase
from processors.chain import Chain
from processors.testing.checks import TEXTS, random_logits
from tests.processors.explain.test_rows import ENV, Run, random_chain


def without(chain, *names):
    return Chain(tuple(stage for stage in chain if stage[0] not in names))


def test_who_decided_and_who_was_forgone_are_those_of_a_fresh_run():
    check(0)


def check(seed):
    rng, count = random.Random(seed), 40
    chains = [random_chain(rng) for _ in range(count)]
    draws = [rng.choice(("gumbel", "multinomial", "greedy")) for _ in range(count)]
    texts = [rng.choice(TEXTS) for _ in range(count)]
    logits = random_logits(count, ENV, seed=seed)
    run = Run(chains, draws, texts)
    tokens = run.tokens(logits)
    alive = [place for place, token in enumerate(tokens.tolist()) if token >= 0]
    chosen = ([chains[i] for i in alive], [draws[i] for i in alive], [texts[i] for i in alive], alive)
    run, logits = Run(*chosen), logits[alive]
    assert run.tokens(logits).tolist() == tokens[alive].tolist()
    views = run.explained(logits, tokens[alive])
    names = sorted({name for chain in run.chains for name, _ in chain})
    for name in names:
        having = [place for place, chain in enumerate(run.chains) if chain.get(name) is not None]
        chosen_there = ([column[place] for place in having] for column in chosen)
        fresh = Run([without(run.chains[place], name) for place in having], *[*chosen_there][1:])
        others = dict(zip(having, fresh.tokens(logits[having]).tolist(), strict=True))
        for place, view in enumerate(views):  # where the stage is not, nothing can be left out
            other = others.get(place, view.token)
            assert (name in view.decided_by) == (other != view.token)
            instead = dict(zip(view.decided_by, view.instead, strict=True))
            assert instead.get(name, other) == (other if other >= 0 or name not in instead else None)
    cuts = [spec.name for spec in BUILTIN if spec.phase >= Phase.TRUNCATE]
    fresh = Run([without(chain, *cuts) for chain in run.chains], *chosen[1:])
    for view, other in zip(views, fresh.tokens(logits).tolist(), strict=True):
        if view.forgone is not None:
            assert view.forgone.id == other != view.token


def test_sums_of_what_is_listed_and_of_the_others_are_one():
    rng = random.Random(1)
    chains = [random_chain(rng) for _ in range(30)]
    run = Run(chains, ["greedy"] * 30, [TEXTS[1]] * 30)
    logits = random_logits(30, ENV)
    tokens = run.tokens(logits)
    views = run.explained(logits, tokens.clamp(min=0))
    for view in [view for view, token in zip(views, tokens.tolist(), strict=True) if token >= 0]:
        for place in (view.raw, *(stage.after for stage in view.stages)):
            assert math.fsum([p for _, p in place.top]) + place.others == pytest.approx(1, abs=1e-6)

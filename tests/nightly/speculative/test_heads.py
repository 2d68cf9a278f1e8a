"""Whole runs with draft heads: 216 prompts a kind, the law of texts that drafts decide, random company."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from gencli.core.request import Beams, Contrastive, Drafting, Guidance, LayerContrast, Limits, Stops
from gencli.engine.engine import Engine
from gencli.errors import UsageError
from processors.chain import Chain
from processors.stages.grammar_stage import GrammarParams
from processors.verification import Verification
from tests.engine.harness import request
from tests.speculative.agreeing_heads import KINDS
from tests.speculative.head_runs import (
    CONDITIONS,
    REJECTION,
    SCHEMA,
    conditioned,
    drafted,
    loaded,
    of_cells,
    outcomes,
    pair,
    plain,
    within,
)

CELLS = tuple(product(({"tokens": 4}, {"tokens": None}), (1, 5)))  # of drafts, and the batch size
PROMPTS = 9  # of a cell


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CONDITIONS)
def test_every_text_is_the_one_without_drafts(kind, name):
    proposed = accepted = 0
    for cell, found in of_cells(kind, name, CELLS, PROMPTS):
        assert found.accepted > 0 or cell[0]["tokens"] is None, cell  # the clock decides how many
        proposed, accepted = proposed + found.proposed, accepted + found.accepted
    assert 0 < accepted < proposed


@pytest.mark.parametrize("kind", KINDS)
def test_texts_under_rejection_have_the_law_of_texts_without_drafts(kind):
    letters = Chain.parse("allowed=[97,98,99,100,101,102,103,104] | temperature=1.3")
    one = replace(request("A text of letters:", max_tokens=4), chain=letters, n=4000)
    found = outcomes(kind, drafted(kind, [one], tokens=3, verification=REJECTION), max_batch=16)
    assert found.is_mixed
    others = outcomes(kind, plain([replace(one, seed=one.seed + 1)]), max_batch=16)
    for places in ((0,), (1,), (2,), (3,), (0, 1), (1, 2), (2, 3)):
        mine, theirs = (
            Counter(
                tuple(ids[place] for place in places if place < len(ids)) for ids, *_ in each.texts.values()
            )
            for each in (found, others)
        )
        keys = [key for key in mine | theirs if mine[key] + theirs[key] > 20]
        # Of two samples of one law, and of equal size, this is chi-squared.
        gap = sum((mine[key] - theirs[key]) ** 2 / (mine[key] + theirs[key]) for key in keys)
        assert gap < len(keys) + 6 * (2 * len(keys)) ** 0.5, (places, gap, len(keys))


LONG = "It is a long way to the sea, and nobody knows how far it is, or who was there before. " * 9
BEGINNINGS = ("Once upon a time there was a fox", "Zebra and the way home", LONG, LONG[:300] + "Other", "q")
CHAINS = (
    "temperature=0",
    "temperature=0.8",
    "temperature=1.3 | top_p=0.9",
    "repetition=1.3 | frequency=0.5 | temperature=0.7",
    "min_p=0.05 | temperature=1.1",
    "mirostat:version=2,tau=3,eta=0.3",
    'force:text=" So",at=tokens,after_tokens=4',
    "top_k=3",
)


def made(rng: random.Random, name: str, head: str):
    """A random request."""

    def chance(share, choices):
        return rng.choice(choices) if rng.random() < share else None

    text = rng.choice(BEGINNINGS)
    text = text[: rng.randint(1, len(text))] + rng.choice(("", "x", " and then"))
    if search := chance(0.1, ("contrastive", "beams")):
        values = {"contrastive": Contrastive(0.4, 2), "draw": "greedy"}
        values = values if search == "contrastive" else {"beams": Beams(2), "n": 2}
        return request(text, key=name, max_tokens=12, drafting=Drafting("none"), **values)
    one = request(text, key=name, chain=rng.choice(CHAINS), max_tokens=rng.choice((1, 2, 5, 12, 30)))
    one = replace(
        one,
        n=chance(0.25, (2, 3)) or 1,
        salt=chance(0.15, "uv") or "",
        priority=chance(0.2, (-1, 1)) or 0,
        logprobs=chance(0.2, (1,)),
        trace=chance(0.1, (2,)),
        stops=chance(0.2, (Stops(strings=("a", "er")), Stops(loop=2), Stops(strings=(" b", "o")))) or Stops(),
        guidance=chance(0.2, (Guidance(1.5), Guidance(3.0, negative=tuple(LONG[:120].encode()))))
        or Guidance(),
        prompt_logprobs=chance(0.1, (1,)),
        best_of=chance(0.05, (3,)),
        jump=rng.choice(("auto", "off")),
    )
    if one.n == 1 and one.best_of is None:
        one = replace(one, session=chance(0.15, "st") or "")
    if not one.guidance.is_on:
        one = replace(one, dola=chance(0.15, (LayerContrast("low"), LayerContrast("high"))))
    if "force" not in str(one.chain) and rng.random() < 0.15:
        grammars = GrammarParams(json.dumps(SCHEMA)), GrammarParams("[a-z ]{4,20}[0-9]{2}", kind="regex")
        one = within(rng.choice(grammars), one)
    elif prefix := chance(0.1, (tuple(b"known"),)):
        one = replace(one, prefix=prefix, limits=Limits(max_tokens=20))
    if (drafter := rng.choice(("none", "ngram", head, head, head))) == "none":
        return replace(one, drafting=Drafting("none"))
    policy = rng.choice(("match", "match", "rejection", "lossy-typical"))
    tokens, least = rng.choice((None, 1, 2, 4, 7)), rng.choice((0.0, 0.0, 0.2))
    return replace(one, drafting=Drafting(drafter, tokens, least, Verification(policy)))


def is_possible(kind, one):
    try:
        Engine(loaded(kind).runner, loaded(kind).tokenizer, max_batch=3).submit(
            replace(one, drafting=replace(one.drafting, drafter=""))
        )
    except UsageError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_random_company_changes_no_text(kind, seed):
    rng, head = random.Random(f"{kind} {seed}"), pair(kind).head
    requests = [one for number in range(14) if is_possible(kind, one := made(rng, f"r{number}", head))]
    expected = {}
    for one in requests:
        alone = [one] if one.drafts_decide else plain([one])
        expected |= outcomes(kind, alone, max_batch=3).texts
    assert len(expected) > 5
    for _ in range(3):
        rng.shuffle(requests)
        options = {
            "max_batch": rng.choice((3, 4, 6)),
            "step_tokens": rng.choice((None, 16, 40, 100)),
            "share_prefixes": rng.random() < 0.8,
            "run_ahead": rng.random() < 0.3,
        }
        found = outcomes(kind, requests, **options).texts
        assert {key: found[key] for key in expected} == expected, options

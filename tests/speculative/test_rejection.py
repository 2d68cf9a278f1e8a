"""Verified by rejection, texts of the engine follow the distribution that they have without drafts."""

import math
from dataclasses import dataclass

import torch

from gencli.models.fake import FakeRunner
from processors.catalog import GrammarParams
from processors.chain import Chain
from tests.engine.harness import request
from tests.speculative.distribution import ALLOWED, IDS, TOKENS, chances

SLOTS = 80  # more take longer: each new text is compared with what every lane holds


GRAMMAR = (("grammar", GrammarParams("a[ab]c|b[cd]a|[cd]{2}[ab]", "regex")),)


CUTS = "frequency=1.5 | repetition=1.5 | temperature=0.6 | top_k=3 | top_p=0.95"


CHAINS = {
    "truncated": Chain.parse(f"{ALLOWED} | temperature=0.6 | top_p=0.9"),
    "penalised": Chain.parse(f"{ALLOWED} | frequency=1.5 | repetition=1.5"),
    "in a grammar": Chain(GRAMMAR),
    "mirostat": Chain.parse(f"{ALLOWED} | mirostat:version=2,tau=0.9,eta=2"),
    "adaptive": Chain.parse(f"{ALLOWED} | adaptive_p:target=0.4,decay=0.2"),
    "all": Chain((*GRAMMAR, *Chain.parse(CUTS).stages)),
}


# A text in a grammar is complete after three tokens; far from its limit, nothing looks for a short end.
MOST = dict.fromkeys(CHAINS, TOKENS) | {"in a grammar": 200, "all": 200}


@dataclass(frozen=True)
class Tables:
    """The target's model and the draft's: near to each other, or with nothing in common."""

    target: FakeRunner
    draft: FakeRunner

    @classmethod
    def make(cls, *, are_near=True):
        first, second = (FakeRunner(max_lanes=SLOTS + 1, seed=seed, scale=1.0) for seed in (0, 1))
        if are_near:
            second.table = 0.6 * first.table + 0.8 * second.table
        else:
            even = torch.arange(258) % 2 == 0
            first.table = first.table.masked_fill(even, -math.inf)
            second.table = second.table.masked_fill(~even, -math.inf)
        return cls(first, second)


def test_the_letters_are_all_that_can_come():
    tables = Tables.make()
    for name, chain in CHAINS.items():
        one = request("a", chain=chain, max_tokens=MOST[name])
        due = chances(one, lambda text: tables.target.table[(*IDS[:1], *text)[-1]])
        assert math.isclose(float(due.sum()), 1, rel_tol=1e-6)

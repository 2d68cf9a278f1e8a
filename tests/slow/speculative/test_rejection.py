"""Verified by rejection, texts of the engine follow the distribution that they have without drafts."""

import math
from dataclasses import dataclass

import torch

from gencli.core.request import Drafting
from gencli.models.other_runners import FakeRunner
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.drafter import Drawn
from processors.catalog import GrammarParams
from processors.chain import Chain
from processors.request_values import Verification
from tests.engine.harness import request
from tests.processors.rejection_grid import Gap
from tests.speculative.distribution import ALLOWED, IDS, TOKENS, chances, counted
from tests.speculative.turned import turned

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


SAMPLES = dict.fromkeys(CHAINS, 6000) | {"in a grammar": 1500, "all": 1500}  # grammars take longer


class Raw(ModelDrafter):
    """Says that it drew from its logits as they were before the chain."""

    def __init__(self, runner):
        super().__init__(runner)
        self._table = runner.table

    def propose(self, asks):
        return [self._raw(ask, run) for ask, run in zip(asks, super().propose(asks), strict=True)]

    def _raw(self, ask, run):
        fed = [ask.tokens[-1], *run][: len(run)]
        logits = self._table[torch.tensor(fed, dtype=torch.int64)]
        probable = logits.softmax(-1)[range(len(run)), list(run)].tolist()
        return Drawn(tuple(run), tuple(logits), tuple(probable))


def measured(name, drafter, tables, *, least=0.0, samples=0):
    """The gap between the texts that came and those that were due; and how many drafts stood."""
    drafting = Drafting("", None, least, Verification("rejection"))
    samples = samples or SAMPLES[name]
    one = request("a", chain=CHAINS[name], max_tokens=MOST[name], n=samples, drafting=drafting)
    counts, stood = counted(one, runner=tables.target, drafter=drafter, max_batch=SLOTS)
    due = chances(one, lambda text: tables.target.table[(*one.prompt_ids, *text)[-1]])
    return Gap.of(counts, due), stood / samples


def check(name):
    tables = Tables.make()
    found, stood = measured(name, ModelDrafter(tables.draft), tables)
    assert not found.is_wide, name
    assert stood > 0.4, name


def check_through_text(least):
    tables = Tables.make()
    others = [token for token in range(258) if token not in IDS]
    draft = FakeRunner(max_lanes=SLOTS + 1)
    draft.table = tables.draft.table.index_fill(1, torch.tensor(others), -20.0)
    found, stood = measured("truncated", turned(draft), tables, least=least)
    assert not found.is_wide, least
    assert stood > 0.2, least


def check_is_noticed(name):
    tables = Tables.make()
    assert measured(name, Raw(tables.draft), tables, samples=1500)[0].is_wide, name


def check_without_overlap(name):
    tables = Tables.make(are_near=False)
    found, stood = measured(name, ModelDrafter(tables.draft), tables, samples=2000)
    assert not found.is_wide, name
    assert stood == 0, name


def test_they_have_it_without_any_overlap():
    check_without_overlap("penalised")


def test_drafts_from_something_else_than_was_said_are_noticed():
    check_is_noticed("truncated")

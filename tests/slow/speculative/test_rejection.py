"""Verified by rejection, texts of the engine follow the distribution that they have without drafts."""

import torch

from gencli.core.request import Drafting
from gencli.models.fake import FakeRunner
from gencli.speculative.base import Drawn
from gencli.speculative.draft_model import ModelDrafter
from processors.policy import Verification
from tests.engine.harness import request
from tests.processors.rejection_grid import Gap
from tests.speculative.distribution import IDS, chances, counted
from tests.speculative.test_rejection import CHAINS, MOST, SLOTS, Tables
from tests.speculative.turned import turned

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


def test_texts_have_the_distribution_that_they_have_without_drafts():
    check("all")


def check_without_overlap(name):
    tables = Tables.make(are_near=False)
    found, stood = measured(name, ModelDrafter(tables.draft), tables, samples=2000)
    assert not found.is_wide, name
    assert stood == 0, name


def test_they_have_it_without_any_overlap():
    check_without_overlap("penalised")


def test_drafts_through_text_were_not_drawn():
    check_through_text(0.3)


def test_drafts_from_something_else_than_was_said_are_noticed():
    check_is_noticed("truncated")

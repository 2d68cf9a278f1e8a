"""Verified by rejection, texts follow the distribution that they have without drafts."""

import math
from dataclasses import dataclass
from itertools import product

import pytest
import torch

from gencli.drafters.base import Drawn
from gencli.drafters.model import ModelDrafter
from gencli.models.fake import FakeRunner
from gencli.request import Drafting
from processors.base import Admission, Env
from processors.catalog import GrammarParams
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.policy import Verification
from processors.rows import Rows
from tests.drafters.cases import outcomes
from tests.drafters.turned import turned
from tests.engine.harness import TOKENIZER, request

SAMPLES, TOKENS, SLOTS = 6000, 3, 500
LETTERS = "abcd"
IDS = tuple(LETTERS.encode())
ALLOWED = f"allowed={list(IDS)}"
# A text in a grammar is complete after as many tokens; far from its limit, nothing looks for a short end.
MOST = {"truncated": TOKENS, "penalised": TOKENS, "in a grammar": 200}
CHAINS = {
    "truncated": f"{ALLOWED} | temperature=0.6 | top_p=0.9",
    "penalised": f"{ALLOWED} | frequency=1.5 | repetition=1.5",
    "in a grammar": Chain((("grammar", GrammarParams("a[ab]c|b[cd]a|[cd]{2}[ab]", "regex")),)),
}


@dataclass(frozen=True)
class Tables:
    """The target's model and the draft's: near to each other, yet clearly different."""

    target: FakeRunner
    draft: FakeRunner

    @classmethod
    def make(cls):
        runners = [FakeRunner(max_lanes=SLOTS + 1, seed=seed, scale=1.0) for seed in (0, 1)]
        runners[1].table = 0.6 * runners[0].table + 0.8 * runners[1].table
        return cls(*runners)


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
        chances = logits.softmax(-1)[range(len(run)), list(run)].tolist()
        return Drawn(tuple(run), tuple(logits), tuple(chances))


def sampled(name, drafter, tables, *, least=0.0, samples=SAMPLES):
    """How often each text of TOKENS letters came, and how many drafts stood."""
    drafting = Drafting("", None, least, Verification("rejection"))
    one = request("a", chain=CHAINS[name], max_tokens=MOST[name], n=samples, drafting=drafting)
    found, stood = outcomes([one], runner=tables.target, drafter=drafter, max_batch=SLOTS)
    counts = dict.fromkeys(product(IDS, repeat=TOKENS), 0)
    for ids, _ in found.values():
        counts[ids[:TOKENS]] += 1
    return torch.tensor(list(counts.values()), dtype=torch.float64), stood


def exact(name, tables):
    """The probability of each text, place by place through the chain and nothing else."""
    chain = Chain.parse(CHAINS[name]) if isinstance(CHAINS[name], str) else CHAINS[name]
    texts = list(product(IDS, repeat=TOKENS))
    history = History(slots=len(texts))
    pipeline = Pipeline(Env(258, TOKENIZER, (257,), torch.device("cpu")))
    slots, prompt = list(range(len(texts))), tuple(b"a")
    for slot in slots:
        history.admit(slot, prompt, seed=0)
        pipeline.admit(slot, chain, Admission(prompt=prompt, max_tokens=MOST[name]))
    chances, last = torch.ones(len(texts), dtype=torch.float64), torch.full((len(texts),), prompt[-1])
    for place in range(TOKENS):
        rows = pipeline.prepare(Rows.build(history, slots))
        probabilities = pipeline(tables.target.table[last], rows).double().softmax(-1).nan_to_num(0)
        last = torch.tensor([text[place] for text in texts])
        chances *= probabilities[slots, last]
        history.append(slots, [[text[place]] for text in texts], [[False]] * len(texts))
        for slot, text in zip(slots, texts, strict=True):
            if chances[slot] > 0:
                pipeline.commit(slot, [text[place]])
    return chances


def excess(counts, chances):
    """Chi-square of texts that come often enough, in units of its own spread above its mean."""
    assert counts[chances == 0].sum() == 0
    expected = chances * counts.sum()
    often = expected >= 5
    cells = [(counts[often], expected[often]), (counts[~often].sum()[None], expected[~often].sum()[None])]
    gaps = sum(float(((got - due) ** 2 / due).sum()) for got, due in cells if float(due.sum()) >= 5)
    freedom = int(often.sum()) + (float(expected[~often].sum()) >= 5) - 1
    return (gaps - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize("name", CHAINS)
def test_texts_have_the_distribution_that_they_have_without_drafts(name):
    tables = Tables.make()
    samples = 2000 if name == "in a grammar" else SAMPLES  # which takes ten times longer for each
    counts, stood = sampled(name, ModelDrafter(tables.draft), tables, samples=samples)
    assert excess(counts, exact(name, tables)) < 4
    assert stood > 0.4 * samples


def test_improbable_drafts_may_be_dropped():
    """Their noise is not the target's, and what was kept was drawn from what is kept."""
    tables = Tables.make()
    counts, stood = sampled("penalised", ModelDrafter(tables.draft), tables, least=0.3)
    assert excess(counts, exact("penalised", tables)) < 4
    assert 0 < stood < SAMPLES


@pytest.mark.parametrize("least", [0.0, 0.3])
def test_drafts_through_text_were_not_drawn(least):
    tables = Tables.make()
    others = [token for token in range(258) if token not in IDS]
    draft = FakeRunner(max_lanes=SLOTS + 1)
    draft.table = tables.draft.table.index_fill(1, torch.tensor(others), -20.0)
    counts, stood = sampled("truncated", turned(draft), tables, least=least)
    assert excess(counts, exact("truncated", tables)) < 4
    assert stood > 0.2 * SAMPLES


@pytest.mark.parametrize("name", ["truncated", "penalised"])
def test_drafts_from_something_else_than_was_said_are_noticed(name):
    tables = Tables.make()
    counts, _ = sampled(name, Raw(tables.draft), tables, samples=1500)
    assert excess(counts, exact(name, tables)) > 20

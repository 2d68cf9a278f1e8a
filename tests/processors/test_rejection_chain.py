"""Behind a whole chain, tokens verified by rejection have the distribution that the chain gives them."""

import math
from dataclasses import dataclass, replace
from itertools import product

import pytest
import torch

from processors.base import Admission, Env
from processors.catalog import GrammarParams
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rejection import Proposal, rejection
from processors.rng import Stream, row_keys
from processors.rows import Rows
from processors.sampler import Sampler, gumbel_max
from tests.engine.harness import TOKENIZER

DRAWS, DRAFTS = 30_000, 2
LETTERS = tuple(b"abcdefgh")
WIDTH = len(LETTERS)
ALLOWED = f"allowed={list(LETTERS)}"
CHAINS = {
    "truncated": f"{ALLOWED} | temperature=0.7 | top_k=5 | top_p=0.9",
    "penalised": f"{ALLOWED} | frequency=1.5 | repetition=1.4 | temperature=1.3",
    "in a grammar": GrammarParams("[ab]{2,9}|[c-h][a-d]{2,9}", "regex"),
    "all": f"{ALLOWED} | presence=1.0 | temperature=0.8 | min_p=0.1",
}


def tables(kind):
    """Logits [V, V] of target and draft by the last letter: near to each other, or with nothing in common."""
    generator = torch.Generator().manual_seed(3)
    target, noise = (1.5 * torch.randn(WIDTH, WIDTH, generator=generator) for _ in range(2))
    if kind == "near":
        return target, 0.8 * target + 0.6 * noise
    even = torch.arange(WIDTH) % 2 == 0
    return target.masked_fill(even, -math.inf), noise.masked_fill(~even, -math.inf)


class Chained:
    """A chain behind the prompt "a", and behind every one and two letters that may follow it."""

    def __init__(self, chain):
        self.contexts = [letters for n in range(DRAFTS + 1) for letters in product(range(WIDTH), repeat=n)]
        self.history = History(slots=len(self.contexts))
        self.pipeline = Pipeline(Env(258, TOKENIZER, (257,), torch.device("cpu")))
        self._chain = Chain.parse(chain) if isinstance(chain, str) else Chain((("grammar", chain),))
        for slot, context in enumerate(self.contexts):
            self._admit(slot, [LETTERS[letter] for letter in context])

    def _admit(self, slot, ids):
        self.history.admit(slot, LETTERS[:1], seed=0)
        self.pipeline.admit(slot, self._chain, Admission(prompt=LETTERS[:1], max_tokens=500))
        self.history.append([slot], [ids], [[False] * len(ids)])
        self.pipeline.commit(slot, ids)

    def committed(self, table):
        """The processed logits [V] behind each context, by context."""
        last = [(0, *context)[-1] for context in self.contexts]
        rows = Rows.build(self.history, range(len(self.contexts)))
        return dict(zip(self.contexts, self._processed(table[last], rows), strict=True))

    def drafted(self, table):
        """The processed logits [V, V, 3, V] of the three rows that each two drafts have."""
        found = torch.stack([self._rows(table, run) for run in product(range(WIDTH), repeat=DRAFTS)])
        return found.view(WIDTH, WIDTH, DRAFTS + 1, WIDTH)

    def _rows(self, table, run):
        rows = Rows.build(self.history, [0], [[LETTERS[letter] for letter in run]])
        return self._processed(table[[0, *run]], rows)

    def _processed(self, few, rows):
        logits = torch.full((len(few), 258), -math.inf)
        logits[:, list(LETTERS)] = few
        return self.pipeline(logits, self.pipeline.prepare(rows))[:, list(LETTERS)]


@dataclass(frozen=True)
class Draws:
    """What stands of N requests with two drafts each: tokens [N, 3] and how many [N]."""

    tokens: torch.Tensor
    counts: torch.Tensor


def drawn(chained, target, source, *, number=DRAWS, raw=False):
    """`raw` says that drafts came from the draft's logits before the chain."""
    p, q = chained.drafted(target), chained.drafted(source)
    history, sampler = History(slots=1), Sampler()
    history.admit(0, [0], seed=0)
    sampler.admit(0, "gumbel")
    seeds, place = torch.arange(number), torch.zeros(number, dtype=torch.int64)
    own = row_keys(seeds, place, Stream.DRAFT)
    first = gumbel_max(q[0, 0, 0].expand(number, -1), own, place)
    second = gumbel_max(q[first, 0, 1], own, place + 1)
    rows = Rows.build(history, [0] * number, torch.stack([first, second], dim=1).tolist())
    rows = replace(rows, seeds=seeds.repeat_interleave(DRAFTS + 1))
    before = torch.stack([source[0].expand(number, -1), source[first]], dim=1)
    told = before if raw else q[first, second, :DRAFTS]
    proposal = Proposal(told.flatten(0, 1), (True,) * (DRAFTS * number))
    return Draws(*rejection(p[first, second].flatten(0, 1), rows, sampler, proposal))


def excess(found, expected):
    """Chi-square of each token that stands, given those before it, in its own spread above its mean."""
    gaps, freedom = 0.0, 0
    for context, logits in expected.items():
        mine = found.counts > len(context)
        for place, letter in enumerate(context):
            mine &= found.tokens[:, place] == letter
        came = found.tokens[mine, len(context)].bincount(minlength=WIDTH).double()
        if came.sum() < 100:
            continue
        due = logits.double().softmax(-1) * came.sum()
        assert came[due == 0].sum() == 0
        gaps += float(((came - due) ** 2 / due)[due > 0].sum())
        freedom += int((due > 0).sum()) - 1
    return (gaps - freedom) / math.sqrt(2 * freedom)


CASES = [(name, kind) for kind in ("near", "no overlap") for name in CHAINS if name != "in a grammar"]


@pytest.mark.parametrize(("name", "kind"), [*CASES, ("in a grammar", "near")])
def test_tokens_follow_the_chain(name, kind):
    """Some 200,000 requests in all."""
    chained, (target, source) = Chained(CHAINS[name]), tables(kind)
    found = drawn(chained, target, source)
    assert excess(found, chained.committed(target)) < 4
    assert (found.counts.max() > 1) == (kind == "near")


@pytest.mark.parametrize("name", ["truncated", "penalised", "in a grammar"])
def test_drafts_from_what_the_chain_did_not_see_are_noticed(name):
    chained, (target, source) = Chained(CHAINS[name]), tables("near")
    found = drawn(chained, target, source, number=15_000, raw=True)
    assert excess(found, chained.committed(target)) > 8

"""The truncating warpers of transformers: the same tokens, or a decision why not."""

import math
from itertools import product

import torch
from transformers.generation.logits_process import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    MinPLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.testing.checks import View
from tests.processors.reference.twins import REFERENCE

WIDTH = 200


KINDS = ("plain", "ties", "masked", "steep", "huge")


ROUNDED = 0.02  # of the rows: their float32 sums end on the other side of a boundary


def rows(kind, count):
    """Random rows [count, WIDTH] of four spreads."""
    generator = torch.Generator().manual_seed(11)
    logits = torch.randn(count, WIDTH, generator=generator)
    logits *= torch.tensor([0.3, 1, 3, 8])[torch.arange(count) % 4, None]
    if kind == "ties":
        return (2 * logits).round() / 2
    if kind == "masked":
        return logits.masked_fill(torch.rand(count, WIDTH, generator=generator) < 0.5, -math.inf)
    return logits * {"plain": 1, "steep": 1e3, "huge": 1e36}[kind]


def ours(chain, logits):
    pipeline, history, slots = Pipeline(Env(WIDTH)), History(), range(len(logits) // 100)
    for slot in slots:
        history.admit(slot, (1,))
        pipeline.admit(slot, chain, Admission((1,)))
    return pipeline(logits, Rows.build(history, slots, [[0] * 99] * len(slots)))


# What of ties: the same stay; as many, but theirs are any (R3: here the lowest ids stay); or here fewer
# stay, as they cut no tie with the last token ([5], [12]) or with the last one that `keep` holds (R3).
# Not here: top_h=1, where two float32 sums of the same terms decide, and min_p with `keep`, which picks any
# of the tokens whose probability is 0 in float32.
SAME, AS_MANY, FEWER = "same", "as many", "fewer"


WARPERS = [
    ("top_k:k=20,ties=keep", TopKLogitsWarper(20), SAME),
    ("top_k=20", TopKLogitsWarper(20), FEWER),
    ("top_p=0.5", TopPLogitsWarper(0.5), AS_MANY),
    ("top_p:p=0.1,keep=5", TopPLogitsWarper(0.1, min_tokens_to_keep=5), AS_MANY),
    ("min_p=0.05", MinPLogitsWarper(0.05), SAME),
    ("typical:p=0.2,ties=keep", TypicalLogitsWarper(0.2), SAME),
    ("typical:p=0.9,ties=keep", TypicalLogitsWarper(0.9), SAME),
    ("typical:p=0.5,ties=keep,keep=5", TypicalLogitsWarper(0.5, min_tokens_to_keep=5), AS_MANY),
    ("typical=0.9", TypicalLogitsWarper(0.9), FEWER),
    ("top_h=0.4", TopHLogitsWarper(0.4), AS_MANY),
    ("top_h=0.9", TopHLogitsWarper(0.9), AS_MANY),
    ("epsilon=3e-4", EpsilonLogitsWarper(3e-4), SAME),
    ("epsilon=0.1", EpsilonLogitsWarper(0.1), SAME),
    ("epsilon:cutoff=0.1,keep=4", EpsilonLogitsWarper(0.1, min_tokens_to_keep=4), FEWER),
    ("eta=3e-4", EtaLogitsWarper(3e-4), SAME),
    ("eta=0.1", EtaLogitsWarper(0.1), SAME),
]


def check(text, warper, of_ties, kind, count):
    logits, chain = rows(kind, count), Chain.parse(text)
    found, expected = ours(chain, logits), warper(None, logits.clone())
    by_id = found
    if kind == "ties" and of_ties == AS_MANY:
        found, expected = found.sort(1).values, expected.sort(1).values
    if kind == "ties" and of_ties == FEWER:
        assert not ((found > -math.inf) & (expected == -math.inf)).any(), text
        # A logit that only they keep is one that stays here too, with a lower id.
        extra = torch.where(found == -math.inf, expected, -math.inf)
        kept = found.sort(1).values
        place = torch.searchsorted(kept, extra).clamp(max=WIDTH - 1)
        assert ((kept.gather(1, place) == extra) | (extra == -math.inf)).all(), text
        return
    differing = (found != expected).any(1).nonzero().squeeze(1).tolist()
    assert len(differing) <= ROUNDED * count, (text, kind)
    ((stage, params),) = chain
    for row in differing:  # there the float64 twin decides
        twin = REFERENCE[stage](logits[row].tolist(), params, View())
        assert by_id[row].tolist() == twin, (text, kind)


def test_the_same_tokens_stay():
    for case, kind in product(WARPERS, KINDS):
        check(*case, kind, 400)

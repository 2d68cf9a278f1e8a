"""Each request is verified by its own policy, whatever its neighbours have."""

import math

import torch

from processors.history import History
from processors.request_values import Verification
from processors.rows import Rows
from processors.sampler import Sampler
from processors.verification import Proposal, Verifier, above_threshold, is_typical

DRAFTS = [(1, 2), (), (3, 0, 4), (5,), (2, 2), (0,)]
POLICIES = ["match", "rejection", "lossy-typical", "lossy-threshold", "rejection", "match"]


def step(places):
    """The logits, rows, proposal and verifier of some of the requests."""
    history, sampler = History(slots=len(DRAFTS)), Sampler()
    verifier = Verifier(sampler)
    for slot, policy in enumerate(POLICIES):
        history.admit(slot, [7], seed=slot)
        sampler.admit(slot, "gumbel")
        verifier.admit(slot, Verification(policy, threshold=0.1))
    generator = torch.Generator().manual_seed(5)
    target = [2 * torch.randn(len(run) + 1, 6, generator=generator) for run in DRAFTS]
    source = [torch.randn(len(run), 6, generator=generator) for run in DRAFTS]
    rows = Rows.build(history, places, [DRAFTS[i] for i in places])
    drawn = (True,) * sum(len(DRAFTS[i]) for i in places)
    proposal = Proposal(torch.cat([source[i] for i in places]), drawn)
    return verifier, torch.cat([target[i] for i in places]), rows, proposal


def stands(places):
    verifier, logits, rows, proposal = step(places)
    tokens, counts = verifier(logits, rows, proposal)
    return [row[:count] for row, count in zip(tokens.tolist(), counts.tolist(), strict=True)]


def test_policies_mix_in_one_step():
    alone = [stands([i])[0] for i in range(len(DRAFTS))]
    assert stands(range(len(DRAFTS))) == alone
    assert stands([4, 2, 0, 5]) == [alone[i] for i in (4, 2, 0, 5)]


def test_the_threshold_is_the_least_probability_of_a_draft_that_stands():
    logits, drafts = torch.tensor([[0.7, 0.3], [0.69, 0.31]]).log(), torch.tensor([0, 1])
    assert above_threshold(logits, drafts, 0.3).tolist() == [True, True]
    assert above_threshold(logits, drafts, 0.7).tolist() == [True, False]


def test_typical_drafts_are_those_above_a_level_that_entropy_lowers():
    flat, sharp = torch.zeros(100), torch.tensor([0.95] + [0.05 / 99] * 99).log()
    logits, drafted = torch.stack([flat, sharp, sharp]), torch.tensor([5, 5, 0])
    level = min(0.09, 0.3 * math.exp(-math.log(100)))
    assert (level < 1 / 100, is_typical(logits, drafted).tolist()) == (True, [True, False, True])


def test_a_lossy_policy_lets_drafts_stand_that_were_not_sampled():
    verifier, logits, rows, _ = step([3])
    verifier.admit(3, Verification("lossy-threshold", threshold=1e-9))
    tokens, counts = verifier(logits, rows)
    assert (tokens[0, 0].item(), counts.item()) == (5, 2)

"""The kernel that verifies drafts by rejection decides and draws as its reference does."""

import math

import torch

from processors.verification import rejection_torch
from tests.interpreted import interpreted
from tests.processors.kernels.drafts import MANY, case

NAN, INF = math.nan, math.inf


def check(given, name=None):
    """The kernel's decisions and tokens, compared with the reference's."""
    expected = rejection_torch(*given)
    found = interpreted("processors.kernels.rejection_triton", "rejection_triton")(*given)
    assert [one.tolist() for one in found] == [one.tolist() for one in expected], name
    return expected


CASES = [(0, 5, MANY), (1, 5, (4,)), (2, 512, MANY), (3, 700, (1, 1)), (4, 8192, (4,)), (5, 9001, MANY)]


def test_a_step_is_decided_as_by_the_reference():
    for given in CASES:
        check(case(*given), given)


def test_all_stand_where_target_and_proposal_are_the_same():
    given = case(1, 600, (3, 2), certain=0, near=0)
    accepted, replacement = check(given)
    assert accepted.tolist() == [3, 2]
    assert replacement.tolist() == [-1, -1]


def test_what_the_target_cannot_bring_is_replaced_at_once():
    for certain in (0, 1):
        given = case(2, 600, (3, 2), certain=certain)
        logits, drafts = given[0], given[5]
        logits[given[3], drafts[:, 0]] = -INF
        accepted, replacement = check(given, certain)
        assert accepted.tolist() == [0, 0], certain
        assert (replacement >= 0).all(), certain
        assert (replacement != drafts[:, 0]).all(), certain


def test_without_a_proposal_every_draft_is_certain():
    given = case(3, 600, (3, 2, 1), certain=1)
    assert given[7] is None
    check(given)


def test_where_nothing_is_left_the_replacement_comes_from_the_target():
    *given, chances = case(4, 600, (2, 2), certain=0, near=0)
    accepted, replacement = check([*given, 1000 * chances])  # so that a draft falls although p = q
    assert accepted.tolist() == [0, 0]
    assert (replacement >= 0).all()


def test_a_broken_row_is_left_to_the_sampler_and_its_neighbour_goes_on():
    for broken in (NAN, INF, -INF):
        given = case(5, 9000, (2, 2))
        given[0][0] = -INF if broken == -INF else given[0][0].index_fill(0, torch.tensor([8700]), broken)
        accepted, replacement = check(given, broken)
        assert (accepted[0], replacement[0]) == (0, -1), broken


def test_a_request_is_decided_alone_as_in_company():
    logits, seeds, positions, starts, num_drafts, drafts, q_row, proposal, chances = case(6, 9000, (1, 2, 1))
    kernel = interpreted("processors.kernels.rejection_triton", "rejection_triton")
    together = kernel(logits, seeds, positions, starts, num_drafts, drafts, q_row, proposal, chances)
    rows = slice(int(starts[1]), int(starts[2]))
    alone = kernel(
        logits[rows], seeds[rows], positions[rows], torch.tensor([0]), num_drafts[1:2], drafts[1:2],
        q_row[rows], proposal, chances,
    )  # fmt: skip
    assert [one[0] for one in alone] == [one[1] for one in together]


def test_a_draft_is_decided_though_a_later_one_has_fallen_already():
    given = case(7, 600, (2, 2))
    verdicts = interpreted("tests.processors.kernels.drafts_alone", "verdicts")
    free, stopped = (verdicts(torch.tensor(stops), given) for stops in ([0, 0], [1, 1]))  # at the last draft
    firsts = given[3]
    assert (stopped[firsts] > 0).all()
    assert torch.equal(stopped[firsts], free[firsts])

"""Whatever drafts were drawn from, the tokens that stand follow the target's distribution."""

import math
from dataclasses import replace
from itertools import product

import torch

from processors.history import History
from processors.rows import Rows
from processors.sampler import Sampler
from processors.verification import Proposal, rejection
from tests.processors.reference.draw_twins import rejection as plain_rejection

INF = math.inf


def rows_of(drafts, *, draw="gumbel", seeds=None):
    history, sampler = History(slots=len(drafts)), Sampler()
    for slot in range(len(drafts)):
        history.admit(slot, [7], seed=slot + 1 if seeds is None else seeds[slot])
        sampler.admit(slot, draw)
    return Rows.build(history, range(len(drafts)), drafts), sampler


def stands(logits, drafts, proposal=None, **told):
    rows, sampler = rows_of(drafts, **told)
    tokens, counts = rejection(logits, rows, sampler, proposal)
    return [row[:count] for row, count in zip(tokens.tolist(), counts.tolist(), strict=True)]


def random_case(seed, width):
    """Requests with 0 to 4 drafts, some of them certain; logits with masks and peaks."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, 5, (12,), generator=generator).tolist()
    target = 3 * torch.randn(sum(sizes) + 12, width, generator=generator)
    source = target[: sum(sizes)].roll(1, 0) * 0.3 + torch.randn(sum(sizes), width, generator=generator)
    target[::3, ::2], source[::4, 1::2] = -INF, -INF
    drafts = source.softmax(-1).multinomial(1, generator=generator).squeeze(1)
    drawn = torch.rand(sum(sizes), generator=generator) < 0.7
    runs = [tuple(run.tolist()) for run in drafts.split(sizes)]
    return target, runs, source, tuple(drawn.tolist())


def test_a_batch_equals_the_plain_loop():
    for width, seed in product((5, 40, 700), range(6)):
        target, runs, source, drawn = random_case(seed, width)
        found = stands(target, runs, Proposal(source[torch.tensor(drawn)], drawn))
        start = 0
        for i, (run, tokens) in enumerate(zip(runs, found, strict=True)):
            first = start - i
            rows = target[start : start + len(run) + 1].tolist()
            given = [source[first + j].tolist() if drawn[first + j] else None for j in range(len(run))]
            assert tokens == plain_rejection(rows, run, given, seed=i + 1, position=0), (width, seed)
            start += len(run) + 1


def test_drafts_that_the_target_would_always_draw_stand_and_bring_a_bonus():
    logits = torch.full((3, 6), -INF)
    logits[0, 4] = logits[1, 2] = logits[2, 5] = 1.0
    assert stands(logits, [(4, 2)]) == [[4, 2, 5]]


def test_a_certain_draft_that_is_impossible_is_replaced_by_a_draw_from_the_target():
    logits = torch.full((4, 6), -INF)
    logits[0, 4] = logits[1, 2] = logits[2, 1] = logits[3, 0] = 1.0
    assert stands(logits, [(3,), (2,)]) == [[4], [1]]


def test_without_drafts_the_token_is_the_one_without_speculation():
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    rows, sampler = rows_of([()] * 6)
    assert stands(logits, [()] * 6) == [[token] for token in sampler(logits, rows).tolist()]


def test_the_bonus_token_has_the_noise_of_its_position():
    logits = torch.zeros(4, 30)
    logits[0, 3] = 90.0
    rows, sampler = rows_of([(3,), ()])
    plain = sampler(logits[:3], replace(rows, counts=(1, 1, 1))).tolist()
    assert stands(logits[:3], [(3,), ()]) == [[3, plain[1]], [plain[2]]]


def test_a_broken_row_is_marked_and_its_neighbour_goes_on():
    for broken in (math.nan, INF, -INF):
        logits = torch.zeros(4, 5)
        logits[0] = -INF if broken == -INF else logits[0].index_fill(0, torch.tensor([2]), broken)
        first, second = stands(logits, [(2,), (1,)])
        assert first == [-1 if broken == -INF else -2], broken
        assert all(0 <= token < 5 for token in second), broken


def test_neighbours_change_nothing():
    for draw in ("multinomial", "gumbel"):
        target, runs, source, drawn = random_case(3, 60)
        together = stands(target, runs, Proposal(source[torch.tensor(drawn)], drawn), draw=draw)
        start = 0
        for i, run in enumerate(runs):
            first, end = start - i, start + len(run) + 1
            mine = drawn[first : first + len(run)]
            own = source[first : first + len(run)][torch.tensor(mine, dtype=torch.bool)]
            alone = stands(target[start:end], [run], Proposal(own, mine), seeds=[i + 1], draw=draw)
            assert alone == [together[i]], draw
            start = end


def test_draft_after_draft_as_for_large_steps_gives_the_same(monkeypatch):
    cases = {}
    for seed in range(6):
        target, runs, source, drawn = random_case(seed, 60)
        own = source[torch.tensor(drawn)]
        drafts = torch.tensor([token for run in runs for token in run])[torch.tensor(drawn)]
        known = own.softmax(-1).gather(1, drafts[:, None]).squeeze(1)
        for number, proposal in enumerate((None, Proposal(own, drawn), Proposal(own, drawn, known))):
            cases[seed, number] = target, runs, proposal
    at_once = {case: stands(*given) for case, given in cases.items()}
    monkeypatch.setattr("processors.verification._LARGE", 0)
    monkeypatch.setattr("processors.kernels.operations.CACHED", 3 * 60)
    assert {case: stands(*given) for case, given in cases.items()} == at_once

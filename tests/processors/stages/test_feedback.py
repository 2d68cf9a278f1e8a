"""What stages that follow the drawn tokens have in common: entries 20 and 21."""

import re

import pytest
import torch

from processors.chain import Chain, check_together
from processors.errors import ChainError
from processors.registry import builtin_registry
from processors.rows import Rows
from processors.testing import Bench, Subject, Text, random_logits, toy_env
from tests.helpers.refusal import refusal

ENV = toy_env()
ON = {"mirostat": {"version": 2, "tau": 5.0, "eta": 0.3}, "adaptive_p": {"target": 0.4, "decay": 0.3}}
TEXT = Text((5, 6), (), ())
LOGITS = 2 * random_logits(7, ENV, seed=3)
STEPS = -0.03 * torch.arange(ENV.vocab_size)[None]  # how many of these stay shows a small change of mu


class Slots:
    """Slots of one stage; `probe` shows the number of a slot in the logits that come out."""

    def __init__(self, name, count=1):
        stage = builtin_registry().load(name)
        self._bench = Bench(Subject(stage, (stage.Params(**ON[name]),)))
        for slot in range(count):
            self._bench.admit(slot, stage.Params(**ON[name]), TEXT)
        self.history, self.stage = self._bench.history, self._bench.stage
        self.commit, self.fork, self.apply = self._bench.commit, self._bench.fork, self._bench.apply

    def probe(self, slot=0):
        return self.apply(STEPS, [slot])[0].tolist()

    def step(self, row, token, slot=0):
        self.apply(LOGITS[row : row + 1], [slot])
        self.commit(slot, [token])


def stepped(name, *tokens):
    """What a slot shows after these tokens, token j chosen from row j."""
    slots = Slots(name)
    for row, token in enumerate(tokens):
        slots.step(row, token)
    return slots.probe()


@pytest.fixture(params=ON)
def name(request):
    return request.param


def test_each_token_changes_what_comes_next(name):
    shown = [stepped(name, *tokens) for tokens in ((), (3,), (4,), (3, 9))]
    assert all(one != other for i, one in enumerate(shown) for other in shown[:i])


def test_tokens_of_a_step_count_as_in_steps_of_their_own_whichever_drafts_stand(name):
    for kept in [[3, 9, 11, 2], [3, 9, 11], [3, 9], [3], [8], [3, 8], [3, 9, 8]]:
        slots = Slots(name)
        slots.apply(LOGITS[:4], [0], [(3, 9, 11)])
        slots.commit(0, kept)
        assert slots.probe() == stepped(name, *kept), kept


def test_slots_with_drafts_and_without_share_a_step(name):
    slots = Slots(name, 3)
    together = slots.apply(LOGITS[:7], [2, 0, 1], [(3, 9, 11), (), (5,)])
    for slot, tokens in ((1, [5, 6]), (2, [3, 9, 1]), (0, [4])):
        slots.commit(slot, tokens)
    alone = Slots(name)
    expected = [alone.apply(LOGITS[:4], [0], [(3, 9, 11)]), alone.apply(LOGITS[4:5], [0])]
    assert torch.equal(together[:5], torch.cat(expected))
    assert slots.probe(2) == stepped(name, 3, 9, 1)
    for slot, first, tokens in ((0, 4, [4]), (1, 5, [5, 6])):
        other = Slots(name)
        for row, token in enumerate(tokens, first):
            other.step(row, token)
        assert slots.probe(slot) == other.probe()


def test_a_commit_without_a_row_changes_nothing(name):
    slots = Slots(name)
    slots.commit(0, [3, 9])
    assert slots.probe() == stepped(name)


def test_a_token_that_no_row_saw_the_drafts_of_changes_nothing(name):
    slots = Slots(name)
    slots.apply(LOGITS[:2], [0], [(3,)])
    slots.commit(0, [8, 9])  # the second row saw a 3
    assert slots.probe() == stepped(name, 8)


def test_positions_at_which_the_stage_is_off_leave_the_number(name):
    """As if it stood under a condition that holds for some rows of a step."""
    slots, alone = Slots(name), Slots(name)
    rows = Rows.build(slots.history, [0], [(3, 9, 11)]).select([1, 3])
    together = slots.stage.apply(LOGITS[[1, 3]], rows)
    slots.commit(0, [3, 9, 11, 2])
    first = alone.apply(LOGITS[1:2], [0])
    alone.commit(0, [9])
    assert torch.equal(together, torch.cat([first, alone.apply(LOGITS[3:4], [0])]))
    alone.commit(0, [2])
    assert slots.probe() == alone.probe()


def test_a_fork_before_the_commit_takes_its_own_token(name):
    slots = Slots(name, 2)
    slots.apply(LOGITS[:1], [0])
    slots.fork(0, 1)
    slots.commit(0, [3])
    slots.commit(1, [4])
    assert (slots.probe(0), slots.probe(1)) == (stepped(name, 3), stepped(name, 4))


def test_logits_that_a_later_stage_edits_do_not_matter(name):
    slots = Slots(name)
    slots.apply(LOGITS[:1], [0]).zero_()
    slots.commit(0, [3])
    assert slots.probe() == stepped(name, 3)


def test_an_impossible_token_leaves_the_number_finite(name):
    slots, masked = Slots(name), LOGITS[:1].clone()
    masked[0, 3] = -torch.inf
    slots.apply(masked, [0])
    slots.commit(0, [3])
    assert not torch.tensor(slots.probe()).isnan().any()


def test_what_would_change_the_probabilities_is_refused_by_name():
    for chain, message in [
        ("top_k=5 | mirostat=2", "mirostat and top_k contradict each other"),
        ("mirostat=2 | adaptive_p=0.5", "mirostat and adaptive_p contradict each other"),
        ("mirostat=2 | temperature=0.5", "mirostat runs before temperature"),
        ("adaptive_p=0.5 | min_p=0.1", "adaptive_p runs before min_p"),
    ]:
        assert re.search(message, refusal(ChainError, check_together, Chain.parse(chain))), chain


def test_penalties_a_temperature_and_a_truncation_before_adaptive_p_are_fine():
    check_together(Chain.parse("presence=1 | temperature=0.5 | mirostat=2 | skew=1"))
    check_together(Chain.parse("temperature=0.5 | min_p=0.1 | adaptive_p=0.5"))

"""The stage force: where its text begins, and what it leaves alone."""

import torch

from processors.base import Admission, Env
from processors.chain import Chain
from processors.errors import EmptySupport, ParamError, TokenError
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.testing import ToyVocabulary
from tests.helpers.refusal import refusal

TOY = ToyVocabulary()
WIDTH = TOY.vocab_size
EOS = 1
CAT, SAT = TOY.encode(" cat", special=False)[0], TOY.encode(" sat", special=False)[0]


class Slot:
    """A request in a pipeline; `step` applies the chain to a row and commits the token given."""

    def __init__(self, chain, *, max_tokens=None, stop_ids=(), prompt=()):
        self.pipeline, self.history = Pipeline(Env(WIDTH, TOY, (EOS,))), History()
        self.history.admit(0, prompt)
        self.pipeline.admit(0, Chain.parse(chain), Admission(prompt, stop_ids, max_tokens))

    def left(self, best=7, drafts=()):
        """The ids that are left, where `best` has the largest logit; with drafts, of each row."""
        logits = torch.zeros(len(drafts) + 1, WIDTH)
        logits[:, best] = 5
        out = self.pipeline(logits, Rows.build(self.history, [0], [drafts]))
        ids = [torch.nonzero(row > -torch.inf).flatten().tolist() for row in out]
        return ids if drafts else ids[0]

    def step(self, token, best=7):
        left = self.left(best)
        self.history.append([0], [[token]])
        self.pipeline.commit(0, [token])
        return left

    def steps(self, *tokens):
        return [left[0] if len(left) == 1 else None for left in map(self.step, tokens)]


def test_a_text_is_written_at_its_place_once():
    for chain, tokens, forced in [
        ('force=" cat sat"', (CAT, SAT, 7), [CAT, SAT, None]),
        ("force:ids=[9,8]", (9, 8, 7), [9, 8, None]),
        ('force:text=" cat",at=tokens,after_tokens=2', (7, 8, CAT, 7), [None, None, CAT, None]),
        ('force:text=" cat",at=id,after_id=8', (7, 8, CAT, 8, 8), [None, None, CAT, None, None]),
        # A text may span tokens, and end within one.
        ('force:ids=[9],at=text,after="e cat sa"', (3, CAT, SAT, 9, 3), [None, None, None, 9, None]),
    ]:
        assert Slot(chain).steps(*tokens) == forced, chain


def test_rows_of_drafts_follow_the_text():
    slot = Slot('force:text=" cat sat",at=id,after_id=8')
    assert slot.left(drafts=(8, CAT, SAT, 5))[1:3] == [[CAT], [SAT]]
    assert list(map(len, slot.left(drafts=(8, CAT, SAT)))) == [WIDTH, 1, 1, WIDTH]
    slot.step(8)
    assert [token for token, _ in slot.pipeline.predicted(0)] == [CAT, SAT]


def test_before_the_end_a_text_begins_where_an_end_is_likely_and_ends_are_masked_until_then():
    slot = Slot('force:text=" cat sat",at=end', stop_ids=(9,))
    assert sorted(set(range(WIDTH)) - set(slot.step(7))) == [EOS, 9]
    assert slot.left(best=9) == [CAT]
    assert len(slot.left(best=7)) == WIDTH - 2  # apply decides by its own logits, not by earlier ones
    assert slot.step(CAT, best=EOS) == [CAT]
    assert slot.steps(SAT, 7) == [SAT, None]
    assert EOS in slot.left()


def test_before_the_end_a_text_begins_where_only_its_room_is_left():
    slot = Slot('force:text=" cat sat",at=end', max_tokens=3)
    assert slot.steps(7, CAT, SAT) == [None, CAT, SAT]


def test_an_end_inside_drafts_begins_the_text_in_the_rows_behind_it():
    slot = Slot('force:text=" cat sat",at=end')
    assert slot.left(best=EOS, drafts=(CAT, SAT))[:2] == [[CAT], [SAT]]
    slot.history.append([0], [[CAT, SAT, 7]])
    slot.pipeline.commit(0, [CAT, SAT, 7])
    assert len(slot.left(best=EOS)) == WIDTH


def test_a_forced_id_that_another_mask_forbids_leaves_nothing():
    slot = Slot(f'suppress=[{CAT}] | force=" cat"')
    rows = Rows.build(slot.history, [0])
    error = slot.pipeline.explain_failure(torch.zeros(1, WIDTH), rows, 0)
    assert isinstance(error, EmptySupport)
    assert error.stage == "force"


def test_what_cannot_be_written_is_refused():
    for chain, error in [
        ('force:text="a",ids=[3]', ParamError),
        ('force:text="a",at=text', ParamError),
        ('force:text="a",after="b"', ParamError),
        ("force:ids=[9999]", TokenError),
    ]:
        assert refusal(error, Slot, chain), chain

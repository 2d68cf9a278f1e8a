"""History and rows: what a row sees is the prompt, the output and its own drafts."""

from dataclasses import fields

import torch

from processors.history import History
from processors.rows import Rows

YES, NO = torch.tensor([True]), torch.tensor([False])


def seen(rows, visible):
    return [ids[valid].tolist() for ids, valid in zip(visible.ids, visible.valid, strict=True)]


def history_of(*prompts, output=()):
    history = History(slots=1, length=2)
    for slot, prompt in enumerate(prompts):
        history.admit(slot, prompt, seed=slot)
    history.append(range(len(prompts)), [output] * len(prompts))
    return history


def test_rows_see_prompt_and_output_and_never_padding():
    rows = Rows.build(history_of([1, 2, 3], [4], output=(9,)), [1, 0])
    assert seen(rows, rows.visible()) == [[4, 9], [1, 2, 3, 9]]
    assert rows.positions.tolist() == [1, 1]
    assert rows.seeds.tolist() == [1, 0]


def test_row_j_sees_the_first_j_drafts():
    rows = Rows.build(history_of([1, 2], [3]), [0, 1], [(7, 8), ()])
    assert seen(rows, rows.visible()) == [[1, 2], [1, 2, 7], [1, 2, 7, 8], [3]]
    assert rows.positions.tolist() == [0, 1, 2, 0]


def test_the_row_behind_all_drafts_is_the_last_one():
    for drafts in ([(), ()], [(7, 8), ()], [(7, 8), (9,)]):
        history = history_of([1, 2], [3], output=(4,))
        every = Rows.build(history, [1, 0], drafts)
        lasts, behind = every.select(every.lasts), Rows.behind(history, [1, 0], drafts)
        for field in fields(Rows):
            one, other = getattr(behind, field.name), getattr(lasts, field.name)
            assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other, field.name


def test_scope_and_window_cut_what_counts():
    rows = Rows.build(history_of([1, 2, 3], output=(4, 5)), [0])
    wide, two = torch.tensor([99]), torch.tensor([2])
    assert seen(rows, rows.scoped(YES, NO, wide)) == [[1, 2, 3]]
    assert seen(rows, rows.scoped(NO, YES, wide)) == [[4, 5]]
    assert seen(rows, rows.scoped(YES, NO, two)) == [[2, 3]]
    assert seen(rows, rows.scoped(YES, YES, two)) == [[4, 5]]


def test_a_draft_counts_as_output():
    rows = Rows.build(history_of([1, 2]), [0], [(7,)]).select([1])
    assert seen(rows, rows.scoped(NO, YES, torch.tensor([9]))) == [[7]]


def test_history_grows_and_keeps_what_it_holds():
    history = History(slots=1, length=1)
    for slot in range(5):
        history.admit(slot, list(range(slot + 1)))
    history.append([4, 1], [(50, 51, 52), (20,)])
    rows = Rows.build(history, [4, 1, 0])
    assert seen(rows, rows.visible()) == [[0, 1, 2, 3, 4, 50, 51, 52], [0, 1, 20], [0]]


def test_tokens_are_there_when_they_are_read_and_facts_follow_the_requests():
    history = history_of([1, 2], output=(3,))
    history.append([0], [(4, 5)])
    assert history.tokens[0, :5].tolist() == [1, 2, 3, 4, 5]
    assert history.lengths.tolist() == [5]
    assert Rows.build(history, [0]).positions.tolist() == [3]
    history.admit(0, [9], seed=7)
    rows = Rows.build(history, [0])
    assert (rows.seeds.tolist(), rows.positions.tolist(), history.lengths.tolist()) == ([7], [0], [1])


def test_a_fork_is_independent_and_a_released_slot_is_empty():
    history = history_of([1, 2], output=(3,))
    history.fork(0, 1, seed=77)
    history.append([0], [(4,)])
    history.release(0)
    rows = Rows.build(history, [0, 1])
    assert seen(rows, rows.visible()) == [[], [1, 2, 3]]
    assert rows.seeds.tolist() == [0, 77]

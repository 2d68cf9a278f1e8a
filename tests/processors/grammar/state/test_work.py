"""Looking ahead is bounded by a count of calls."""

from processors.grammar.short_texts import SearchBudget


def test_each_call_is_counted_until_none_is_left():
    work = SearchBudget(3)
    assert list(work.each(range(10))) == [0, 1]
    assert work.is_spent
    assert not work.spend()


def test_calls_may_cost_several():
    work = SearchBudget(20)
    assert work.spend(8)
    assert work.spend(8)
    assert not work.spend(8)
    assert work.is_spent


def test_half_of_the_calls_can_be_taken_for_another_search():
    work = SearchBudget(9)
    assert len(list(work.half().each(range(10)))) == 3
    assert len(list(work.each(range(10)))) == 4

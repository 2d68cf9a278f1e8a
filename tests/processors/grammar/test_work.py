"""Looking ahead is bounded by a count of calls."""

from processors.grammar.work import Work


def test_each_call_is_counted_until_none_is_left():
    work = Work(3)
    assert list(work.each(range(10))) == [0, 1]
    assert work.is_spent
    assert not work.spend()


def test_calls_may_cost_several():
    work = Work(20)
    assert work.spend(8)
    assert work.spend(8)
    assert not work.spend(8)
    assert work.is_spent

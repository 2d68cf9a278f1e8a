"""Draft statistics add up, and tell a speed-up only where there is something to compare with."""

from gencli.core.events import Drafted


def test_statistics_of_samples_add_up_by_position():
    total = Drafted(2, (2, 1), (1, 0), 0.5, 1.0) + Drafted(1, (1, 1, 1), (1, 1, 0), 0.25, 0.5, held="stage")
    assert total == Drafted(3, (3, 2, 1), (2, 1, 0), 0.75, 1.5, held="stage")


def test_the_speedup_is_that_over_plain_steps_where_there_are_some():
    measured = Drafted(4, (4,), (4,), 1.0, 3.0, timed=8, plain=4, plain_seconds=4.0)
    assert measured.speedup == (8 / 4.0) / (4 / 4.0)
    assert Drafted(4, (4,), (4,), 1.0, 3.0, timed=8, plain=2, plain_seconds=2.0).speedup is None
    assert Drafted(4, (), (), 0.0, 3.0, timed=8, plain=4, plain_seconds=4.0).speedup is None

"""Many clients that go away at random moments."""

from tests.slow.server.test_exchange import check_cancels


def test_many_cancels_change_no_text_and_leave_nothing():
    check_cancels(400)

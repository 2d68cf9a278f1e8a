"""The shapes of decode steps: which rows they have, and how much room their buffers."""

from gencli.core.request import Feed
from gencli.models.kv.lane_buffers import is_drafted_step, roomy, step_rows


def rows(*lanes, spare, most=0):
    found = step_rows([Feed(lane, 5, (1,)) for lane in lanes], spare, most=most)
    return found.count, [*found.places], found.num_held, found.in_place


def test_rows_come_as_they_are_fed_and_in_place_where_few_are_idle():
    for lanes, spare, most, expected in [
        ((0,), 1, 0, (1, [0], 1, False)),
        ((2, 0, 1), 3, 0, (4, [0, 1, 2], 4, False)),  # a row more than is fed writes to the spare one
        ((7, 3), 0, 0, (2, [0, 1], 8, False)),
        ((0,), 1, 6, (1, [0], 1, True)),
        ((2, 0, 1), 3, 6, (4, [2, 0, 1], 4, True)),
        ((0, 1, 2, 3, 4), 5, 6, (6, [0, 1, 2, 3, 4], 6, True)),  # there are no eight rows
        ((3, 0), 1, 6, (4, [3, 0], 4, True)),
        ((4, 0), 1, 6, (2, [0, 1], 5, False)),  # more idle rows than fed ones
        ((3,), 0, 6, (1, [0], 4, False)),
    ]:
        assert rows(*lanes, spare=spare, most=most) == expected, (lanes, most)


def test_each_token_of_a_feed_with_drafts_has_a_row():
    found = step_rows([Feed(0, 5, (1, 2, 3), 3), Feed(1, 9, (4, 5), 2)], spare=2)
    assert (found.count, [*found.places], found.num_held) == (8, [0, 1, 2, 3, 4], 3)
    assert found.spread([0, 0, 0, 1, 1], found.spare) == [0, 0, 0, 1, 1, 2, 2, 2]


def test_a_step_with_drafts_is_static_where_its_tokens_are_computed_as_alone():
    for feed, is_static in [
        (Feed(0, 5, (1,) * 16, 16), True),
        (Feed(0, 5, (1,) * 17, 17), False),  # its tokens are not computed one by one
        (Feed(0, 5, (1, 2, 3), 2), True),
        (Feed(0, 5, (1, 2, 3), 1), False),
        (Feed(0, 0, (1, 2), 1), False),  # a prompt
        (Feed(0, 5, (1, 2), 2, num_scored=1), False),
        (Feed(0, 5, (1,), 0, text_length=9), False),
    ]:
        assert is_drafted_step([feed, Feed(1, 4, (1,))]) == is_static, (feed, is_static)


def test_a_step_with_too_many_drafts_is_not_static():
    feeds = [Feed(lane, 5, (1,) * 16, 16) for lane in range(9)]
    assert is_drafted_step(feeds[:8])
    assert not is_drafted_step(feeds)


def test_capacity_grows_in_few_steps_with_little_to_spare():
    lengths = range(1, 20_000)
    sizes = sorted({roomy(length, 10**6) for length in lengths})
    assert len(sizes) < 25
    assert all(
        length <= roomy(length, 10**6) <= max(256, length + 256, 1.25 * length + 1) for length in lengths
    )
    assert roomy(900, 1000) == 1024  # no more than the context

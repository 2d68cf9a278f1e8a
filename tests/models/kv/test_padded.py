"""How feeds are grouped into passes and laid out."""

from __future__ import annotations

import torch

from gencli.core.request import Feed, room_for
from gencli.models.kv.lane_batches import fill_gaps, make_padded_batch, split_feeds
from tests.models.cases import case

CPU = torch.device("cpu")


def feed(lane: int, length: int, start: int = 0) -> Feed:
    return Feed(lane, start, tuple(range(1, length + 1)))


def test_feeds_share_a_pass_while_pads_are_few() -> None:
    for lengths, passes in [
        ([1, 1, 1], [[0, 1, 2]]),
        ([5, 1, 5], [[0, 1, 2]]),  # 4 pads
        ([200, 1, 1], [[0], [1, 2]]),
        ([17, 1], [[0, 1]]),  # 16 pads: the budget
        ([18, 1], [[0], [1]]),
        ([100, 90, 1, 90], [[0], [1, 3], [2]]),  # 20 pads
        ([100, 99, 98, 97, 80], [[0, 1, 2, 3], [4]]),  # 6 pads
    ]:
        with case(lengths, passes):
            feeds = [feed(lane, length) for lane, length in enumerate(lengths)]
            groups = split_feeds(feeds, pad_budget=16)
            assert [[member.lane for member in group] for group in groups] == passes


def test_short_feeds_are_padded_on_the_left() -> None:
    feeds = (Feed(2, 0, (7, 8, 9)), Feed(5, 40, (6,)))
    batch = make_padded_batch(feeds, CPU, room=room_for(feeds))
    assert batch.ids.tolist() == [[7, 8, 9], [0, 0, 6]]
    assert batch.positions.tolist() == [[0, 1, 2], [38, 39, 40]]
    assert (batch.start, batch.kv_length, batch.room) == (None, 41, (6, 41))
    assert isinstance(batch.lanes, torch.Tensor)
    assert batch.target is not None
    assert [part.tolist() for part in batch.target] == [[2, 2, 2, 5], [0, 1, 2, 40]]
    assert batch.source is not None
    assert [part.tolist() for part in batch.source] == [[0, 0, 0, 1], [0, 1, 2, 2]]


def test_few_idle_lanes_between_others_become_rows_of_pads() -> None:
    for lanes, filled in [
        ([3], [3]),
        ([0, 1, 3], [0, 1, 2, 3]),
        ([0, 3], [0, 1, 2, 3]),
        ([0, 4], [0, 4]),  # more idle lanes than busy ones
    ]:
        with case(lanes, filled):
            feeds = tuple(feed(lane, 2, start=5) for lane in lanes)
            rows = fill_gaps(feeds, pad_budget=16)
            assert [row.lane for row in rows] == filled
            assert [row for row in rows if row.tokens] == list(feeds)
            assert make_padded_batch(rows, CPU, room=room_for(feeds)).wanted == 1


def test_an_idle_lane_is_not_worth_a_long_row_of_pads() -> None:
    feeds = (feed(0, 17), feed(2, 17))
    assert fill_gaps(feeds, pad_budget=16) == feeds
    feeds = (feed(0, 5), feed(1, 2))  # positions of pads are never negative
    assert make_padded_batch(feeds, CPU, room=room_for(feeds)).positions[1].tolist() == [0, 0, 0, 0, 1]


def test_neighbours_of_equal_length_are_one_rectangle() -> None:
    feeds = (feed(3, 1, start=9), feed(4, 1, start=9))
    batch = make_padded_batch(feeds, CPU, room=room_for(feeds))
    assert (batch.lanes, batch.start, batch.target, batch.source) == (slice(3, 5), 9, None, None)

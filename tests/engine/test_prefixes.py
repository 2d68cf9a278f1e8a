"""The index of prefixes finds what a look at all pairs would find."""

import random

from gencli.core.request import Match, Prefixes, shared_length


def plain_length(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def draw_text(draw):
    """Few letters, so that much is shared."""
    return tuple(draw.choices((0, 1), k=draw.randint(0, 9)))


def test_shared_length_is_what_a_look_at_each_token_gives():
    draw = random.Random(0)
    for _ in range(500):
        a, b = draw_text(draw), draw_text(draw)
        assert shared_length(a, b) == plain_length(a, b), (a, b)


def test_the_nearest_lane_shares_as_much_as_any():
    for seed in range(5):
        draw, index, texts = random.Random(seed), Prefixes(), {}
        kinds = [(rope, salt) for rope in (0, 1) for salt in ("", "s")]
        for step in range(200):
            lane = draw.randrange(8)
            index.remove(lane)
            texts.pop(lane, None)
            if step % 3:
                texts[lane] = draw_text(draw), draw.choice(kinds)
                index.add(lane, *texts[lane])
            wanted, kind = draw_text(draw), draw.choice(kinds)
            match = index.nearest(wanted, kind)
            most = max((plain_length(wanted, text) for text, own in texts.values() if own == kind), default=0)
            assert match.length == most, seed
            assert match == Match() or (plain_length(wanted, texts[match.lane][0]) == most), seed


def test_a_long_prefix_is_not_compared_token_by_token():
    class Counted(int):
        compared = 0

        def __eq__(self, other):
            Counted.compared += 1
            return int(self) == int(other)

        __hash__ = int.__hash__

    text = tuple(Counted(i) for i in range(4096))
    assert shared_length(text, (*text[:4000], -1)) == 4000
    assert Counted.compared < 200  # identical tokens are equal without a look

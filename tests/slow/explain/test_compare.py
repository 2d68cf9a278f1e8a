"""A comparison along a text: the measures are those of softmaxes, and B's choices are those of runs."""

from tests.explain.test_compare import compared, generated


def test_where_they_part_first_the_own_run_of_b_has_its_token():
    for b in ["top_p=0.5", "temperature=0", "repetition=1.8 | top_k=30", "mirostat:version=2,tau=3"]:
        for draw in ["gumbel", "multinomial"]:
            a = "temperature=1.2 | top_k=50"
            places, views = compared(a, b, draw=draw)
            first = next(place for place in places if place.is_parted)
            _, own, _ = generated(b, draw=draw)
            ours, theirs = ([view.token for view in one[: first.pos]] for one in (own, views))
            assert ours == theirs, (b, draw)
            assert own[first.pos].token == first.b, (b, draw)
            assert own[first.pos].decided_by == first.decided_b, (b, draw)

"""Which idle slot a sequence takes, and how much of its prompt the lane of that slot still holds."""

from gencli.engine.scheduler import Slots
from tests.engine.sequences import sequence


def slots(count=3, **options):
    return Slots(count, **{"can_rollback": True, "stays_warm": True, **options})


def take(idle, prompt, *, rope=0, at_least=0, **rest):
    return idle.take(sequence(prompt, computed=0, **rest), rope=rope, at_least=at_least)


def used(idle, prompt, *, slot=0, output=(), session=""):
    """Take a slot and give it back: the lanes that are to be emptied."""
    take(idle, prompt, session=session)
    return idle.put(sequence(prompt, output=output, slot=slot, session=session))


def test_empty_slots_are_taken_from_the_lowest_on():
    idle = slots(2)
    assert [take(idle, (1, 2)) for _ in range(2)] == [(0, 0), (1, 0)]
    assert not idle


def test_a_warm_lane_that_shares_a_prefix_is_preferred_to_an_empty_one():
    idle = slots()
    assert used(idle, (1, 2, 3, 4)) == []
    assert take(idle, (7, 8)) == (1, 0)
    assert take(idle, (1, 2, 9)) == (0, 2)


def test_the_last_token_of_a_prompt_is_never_cached_and_other_rotary_factors_share_nothing():
    for rope, taken in ((0, (0, 2)), (1, (1, 0))):
        idle = slots()
        used(idle, (1, 2, 3), output=(4, 5))
        assert take(idle, (1, 2, 3), rope=rope) == taken, rope


def test_a_lane_with_fewer_cached_tokens_than_another_offers_is_left_warm():
    idle = slots()
    used(idle, (1, 2, 3))
    assert take(idle, (1, 2, 9), at_least=3) == (1, 0)
    assert idle.warm.nearest((1, 2)).lane == 0


def test_without_an_empty_slot_the_oldest_warm_one_is_taken():
    idle = slots(2)
    for slot, prompt in enumerate([(1, 1), (2, 2)]):
        used(idle, prompt, slot=slot)
    used(idle, (2, 2), slot=1)  # again, so it is the youngest
    assert take(idle, (9, 9)) == (0, 0)


def test_where_nothing_stays_warm_the_caller_empties_the_lane():
    idle = slots(stays_warm=False)
    assert used(idle, (1, 2)) == [0]
    assert take(idle, (1, 2)) == (0, 0)


def test_a_session_gets_its_own_lane_and_what_it_may_keep_of_it():
    """A lane that cannot forget is kept where the prompt goes on behind all of it."""
    for forgets, prompt, cached in ((True, (1, 2, 9), 2), (False, (1, 2, 9), 0), (False, (1, 2, 3, 4, 5), 3)):
        idle = slots(can_rollback=forgets, stays_warm=forgets)
        assert used(idle, (1, 2, 3), output=(4,), session="s") == [], (forgets, prompt)
        assert take(idle, prompt, session="s") == (0, cached), (forgets, prompt)


def test_a_parked_lane_is_taken_last_and_the_oldest_first():
    idle = slots(3)
    for slot, session in enumerate(["a", "b"]):
        used(idle, (1, 2), slot=slot, session=session)
    assert [take(idle, (7, 8))[0] for _ in range(3)] == [2, 0, 1]


def test_a_session_that_is_parked_twice_frees_the_older_lane():
    idle = slots()
    for slot in (0, 1):
        take(idle, (1, 2))
        freed = idle.put(sequence((1, 2), slot=slot, session="s"))
    assert freed == [0]


def test_cleared_slots_hold_nothing():
    idle = slots(3)
    for prompt, session in (((1, 2, 3), ""), ((4, 5, 6), "s")):
        slot, _ = take(idle, prompt, session=session)
        idle.put(sequence(prompt, slot=slot, session=session))
    take(idle, (9, 9))
    assert idle.clear() == [0, 1, 2]
    assert [take(idle, (4, 5, 6), session="s"), take(idle, (1, 2, 3))] == [(0, 0), (1, 0)]


def test_slots_of_a_group_are_reserved_at_once_and_freed_together():
    idle = slots(4)
    take(idle, (1, 2))
    assert (idle.reserve(2), len(idle)) == ([1, 2], 1)
    assert (idle.free((0, 1, 2)), len(idle)) == ([0, 1, 2], 4)


def test_after_a_full_memory_a_warm_lane_is_taken_before_an_empty_one():
    idle = slots(3)
    idle.limit = 1
    take(idle, (1, 1))
    idle.put(sequence((1, 1), slot=0))
    assert take(idle, (9, 9)) == (0, 0)
    assert take(idle, (8, 8)) == (1, 0)  # a sequence that is admitted beside it takes an empty one

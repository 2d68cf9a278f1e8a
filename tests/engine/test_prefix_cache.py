"""Common prefixes are computed by one lane and copied by the others, which wait for it."""

from gencli.core.request import Match, Prefixes
from gencli.engine.sequence import Fork, PrefixCache
from tests.engine.sequences import sequence

HEAD = tuple(range(100, 120))  # long enough to be worth a copy


def cache(warm=None, **options):
    return PrefixCache(warm or Prefixes(), **{"can_rollback": True, "is_on": True, **options})


def starting(*tails):
    """Sequences in their slots, of which nothing is computed."""
    return [sequence((*HEAD, *tail), slot=slot, computed=0) for slot, tail in enumerate(tails)]


def test_the_first_of_two_begins_and_the_other_waits_for_its_prefix_and_copies_it():
    shared, (first, second) = cache(), starting((1, 2), (3, 4))
    assert shared.forks([first, second]) == ()
    assert (shared.has_begun(first), shared.has_begun(second)) == (True, False)
    assert (shared.prefill_end(first), shared.prefill_end(second)) == (len(first), 0)
    first.num_computed_tokens = len(HEAD)
    assert shared.forks([first, second]) == (Fork(0, 1, len(HEAD)),)
    assert (second.num_computed_tokens, second.num_cached_tokens) == (len(HEAD), len(HEAD))
    assert shared.prefill_end(second) == len(second)


def test_a_warm_lane_is_copied_at_once():
    warm = Prefixes()
    warm.add(7, (*HEAD, 1))
    shared, (one,) = cache(warm), starting((3, 4))
    assert shared.forks([one]) == (Fork(7, 0, len(HEAD)),)


def test_a_short_prefix_is_not_worth_a_copy_and_whoever_left_is_not_waited_for():
    shared = cache()
    first, second = sequence((1, 2, 3, 4), slot=0, computed=0), sequence((1, 2, 3, 9, 9), slot=1, computed=0)
    shared.forks([first, second])
    assert shared.has_begun(second)
    shared, (first, second) = cache(), starting((1, 2), (3, 4))
    shared.forks([first, second])
    shared.leave(first)
    assert shared.forks([second]) == ()
    assert shared.has_begun(second)


def test_switched_off_it_finds_nothing():
    shared, running = cache(is_on=False), starting((1, 2), (3, 4))
    assert shared.forks(running) == ()
    assert all(map(shared.has_begun, running))


def test_no_prefix_is_shared_across_a_switch_of_rotary_factors():
    shared, (first, second) = cache(rope_switches=(len(HEAD) + 3,)), starting((1, 2), (3, 4, 5, 6))
    first.rope = 0
    shared.begin(first)
    assert shared.best(second.prompt) == Match()
    assert shared.best((*HEAD, 8)) == Match(0, len(HEAD))


def test_a_model_without_rollback_stops_at_a_whole_prompt_until_it_is_copied():
    shared, (first, second, other) = cache(can_rollback=False), starting((1, 2), (1, 9), (5, 6))
    running = [first, second, other]
    assert shared.forks(running) == ()
    assert shared.has_begun(other)  # no whole prompt of another: it computes its own
    assert shared.prefill_end(first) == len(first.prompt) - 1
    first.num_computed_tokens = len(first.prompt) - 1
    assert shared.forks(running) == (Fork(0, 1, len(second.prompt) - 1),)
    assert shared.prefill_end(first) == len(first)

"""With the next step launched before the last one is read, every event of every step is what it was."""

from tests.slow.engine.test_ahead import check_on_a_model, check_seed, check_waits


def test_many_random_requests_have_the_same_events_step_by_step():
    for seed in range(4, 24):
        check_seed(seed)


def test_a_model_with_keys_and_values_gives_the_same_events_of_more_requests():
    for seed in (1, 2):
        check_on_a_model(seed)


def test_on_a_device_no_step_of_more_requests_waits_more_than_once():
    for seed in (1, 2, 3):
        check_waits(seed)

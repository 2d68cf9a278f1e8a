"""Steps that the device runs ahead of the host, and tokens that are taken back."""

from dataclasses import replace

from tests.engine.harness import Scripted, request
from tests.engine.test_ahead import FREE, asked, run, text
from tests.slow.engine.test_ahead import BANNED, check_on_a_model, check_seed, check_waits


def test_many_random_requests_have_the_same_events_step_by_step():
    for seed in range(2, 24):
        check_seed(seed)


def test_a_model_with_keys_and_values_gives_the_same_events_of_more_requests():
    for seed in (0, 1, 2):
        check_on_a_model(seed)


def test_on_a_device_no_step_of_more_requests_waits_more_than_once():
    for seed in range(4):
        check_waits(seed)


def test_drafts_and_company_change_nothing():
    for texts in BANNED:
        many, ends = [asked(texts, seed=seed, n=2) for seed in range(2)], {}
        for one in many:
            ends |= run([one])
        free = {o.prompt_ids: tuple(text(replace(o, chain=FREE, n=1)).encode()) for o in many}
        other = [request(f"other {n}", max_tokens=30) for n in range(3)]
        together = run([*many, *other], max_batch=3, drafter=Scripted(free), step_tokens=16)
        assert all(together[key].text == end.text for key, end in ends.items()), texts
        alone = text(one := replace(many[0], n=1))
        assert text(one, drafter=Scripted({one.prompt_ids: tuple(alone.encode())})) == alone, texts

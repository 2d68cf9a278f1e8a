"""Prompts that begin alike are read once, and no text knows of it."""

from gencli.core.request import Guidance, Limits
from gencli.models.other_runners import FakeRunner
from gencli.speculative.drafter import SuffixDrafter
from tests.engine.harness import engine, generate, request, texts
from tests.engine.test_sessions import Onward, Watched

SYSTEM = "You are a careful clerk who answers in one word. "


OTHER = "Translate into French, and say nothing else: "


def rows(count=24, **rest):
    """Two beginnings, in turns, and prompts without one."""
    heads = (SYSTEM, OTHER, "")
    return [
        request(f"{heads[i % 3]}Row {i}" + "!" * (i % 7), key=i, max_tokens=4 + i % 5, **rest)
        for i in range(count)
    ]


def read(requests, **options):
    """How many prompt tokens were fed, and the ends."""
    runner = options.pop("runner", None) or Watched()
    ends = generate(requests, runner=runner, **options)
    return runner.fed - sum(end.completion_tokens - 1 for end in ends.values()), ends


def test_who_waits_for_a_lane_that_ends_early_goes_on():
    requests = [
        request(SYSTEM + "a", key="a", limits=Limits(9, max_time=0.0)),
        *(request(f"{SYSTEM}{letter}", key=letter) for letter in "bcd"),
    ]
    wanted = {key: text for one in requests[1:] for key, text in texts([one]).items()}
    found = texts(requests, step_tokens=7)
    assert {key: found[key] for key in wanted} == wanted


def test_a_model_that_cannot_forget_shares_a_whole_prompt_and_nothing_else():
    requests = [request(SYSTEM, key=i) for i in range(5)]
    fed, ends = read(requests, runner=Onward())
    assert fed == len(SYSTEM) - 1 + 5
    assert {key: end.text for key, end in ends.items()} == texts(requests)
    fed, ends = read(rows(), runner=Onward(), max_batch=4)
    assert fed == sum(end.prompt_tokens for end in ends.values())
    assert {key: end.text for key, end in ends.items()} == texts(rows())


def test_few_tokens_are_not_worth_a_copy():
    fed, _ = read([request(f"Row {i} of 6", key=i) for i in range(6)])
    assert fed == 6 * len("Row 0 of 6")


def test_a_warm_lane_is_taken_where_it_lies():
    class Forked(FakeRunner):
        forks = 0

        def fork(self, source, target):
            self.forks += 1
            super().fork(source, target)

    runner = Forked()
    on = engine(runner=runner, max_batch=3)
    cached = [generate([request(f"{SYSTEM}{i}", key=i)], on=on)[str(i), 0].cached_tokens for i in range(3)]
    assert cached == [0, len(SYSTEM), len(SYSTEM)]
    assert runner.forks == 0


def order_of(requests, **options):
    """Ids in the order in which they end."""
    return [key for key, _ in generate(requests, **options)]


def brief(text, key, most=2):
    return request(text, key=key, max_tokens=most, chain="ignore_eos=true")


def test_rows_that_share_with_the_lanes_and_the_longest_come_first():
    requests = [brief(f"{(SYSTEM, OTHER)[i % 2]}{i}", i) for i in range(8)]
    assert order_of(requests, max_batch=1) == ["0", "2", "4", "6", "1", "3", "5", "7"]
    requests = [brief(f"{length}", length, length) for length in (2, 9, 5, 7)]
    assert order_of(requests, max_batch=1) == ["9", "7", "5", "2"]
    requests = [brief(chr(97 + i) * length, i) for i, length in enumerate([5, 40, 6, 41, 5, 40])]
    assert order_of(requests, max_batch=3)[:3] == ["0", "4", "2"]  # that begin together are of one length


def test_keys_and_values_are_shared_within_a_salt_only():
    for rest in ({}, {"session": "s"}, {"guidance": Guidance(1.5, (1,) * 20)}):
        runner = Watched()
        on = engine(runner=runner, drafter=SuffixDrafter())
        ends, fed = [], []
        for salt in ("", "a", "a", "b", "", "a"):
            runner.fed = 0
            (end,) = generate([request(SYSTEM, max_tokens=3, salt=salt, **rest)], on=on).values()
            ends.append(end)
            fed.append(runner.fed)
        cold, warm = len(SYSTEM), len(SYSTEM) - 1
        kept = [0, 0, warm, 0, 0, 0] if rest.get("session") else [0, 0, warm, 0, warm, warm]
        assert [end.cached_tokens for end in ends] == kept, rest
        assert {end.text for end in ends} == {ends[0].text}, rest
        assert [count == fed[0] for count in fed] == [not cached for cached in kept], rest
        assert fed[0] >= cold, rest

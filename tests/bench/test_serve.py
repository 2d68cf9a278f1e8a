"""The figures of scripts/bench/serve.py: percentiles of times, and a whole measurement of a small model."""

from serve import Answered, Turn, cost_of, in_turns, share_of


def test_percentiles_are_of_first_events_and_of_the_gaps_after_them():
    answers = (Answered(3, 0.0, (1.0, 1.5, 2.0)), Answered(2, 1.0, (4.0, 4.5)))
    cost = cost_of("serve", [Turn(5.0, 5, answers)])
    assert (cost.tokens, cost.tokens_per_second) == (5, 1.0)
    assert (cost.first_p50_ms, cost.between_p50_ms, cost.between_p99_ms) == (2000, 500, 500)


def test_turns_begin_with_another_way_each_time():
    seen = []
    ways = {
        "a": lambda: seen.append("a") or Turn(1.0, 30),
        "b": lambda: seen.append("b") or Turn(len(seen), 40),
    }
    found = in_turns(ways, 2)
    assert seen == ["a", "b", "b", "a"]
    assert share_of(found, "a", "b") == (30 / 20 + 30 / (40 / 3)) / 2
    assert cost_of("b", found["b"]).tokens_per_second == (40 / 2 + 40 / 3) / 2

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from gencli.helpers import Recent


def test_a_value_is_made_once_and_the_least_recently_used_one_is_dropped() -> None:
    made: list[str] = []

    def value(key: str) -> str:
        return cache.get(key, lambda: made.append(key) or key.upper())  # type: ignore[func-returns-value]

    cache: Recent[str, str] = Recent(2)
    assert [value(key) for key in "abacab"] == list("ABACAB")
    assert made == ["a", "b", "c", "b"]


def test_a_value_that_cannot_be_made_is_tried_again() -> None:
    cache: Recent[str, int] = Recent(2)
    with pytest.raises(ZeroDivisionError):
        cache.get("a", lambda: 1 // 0)
    assert cache.get("a", lambda: 1) == 1


def test_threads_get_one_value() -> None:
    cache: Recent[int, object] = Recent(8)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cache.get(0, object), range(100)))
    assert len({id(each) for each in found}) == 1

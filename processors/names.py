"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["close_names", "did_you_mean"]

_MAX_LENGTH = 64  # characters; longer words get no suggestion, because a key from a file may have any length
_MAX_NAMES = 5  # with more candidates there is no suggestion


def close_names(word: str, known: Iterable[str], *, more: int = 0) -> list[str]:
    """Return the known names that `word` may be a misspelling of; empty if none is near.

    In this order, the first rule with a result decides: names that differ only in separators; names that
    start with `word` or have it as a whole part; names at the least edit distance. The distance is at most 1
    for up to five letters, 2 for up to eight, else 3, plus `more`.
    """
    names = sorted(set(known))
    wanted = _plain(word)
    if not wanted or len(wanted) > _MAX_LENGTH:
        return []
    if same := [name for name in names if _plain(name) == wanted]:
        return same
    if len(wanted) > 2:
        part = "_".join(_parts(word))
        within = [
            name
            for name in names
            if _plain(name).startswith(wanted) or f"_{part}_" in f"_{'_'.join(_parts(name))}_"
        ]
        if within:
            return within if len(within) <= _MAX_NAMES else []
    limit = more + (1 if len(wanted) <= 5 else 2 if len(wanted) <= 8 else 3)
    distances = {name: _distance(wanted, _plain(name), limit) for name in names}
    least = min(distances.values(), default=limit + 1)
    near = [name for name in names if distances[name] == least <= limit]
    return near if len(wanted) > 2 and len(near) <= _MAX_NAMES else []


def did_you_mean(names: Sequence[str]) -> str:
    """Return a question like `Did you mean top_k or top_p?`; "" without names."""
    if not names:
        return ""
    listed = ", ".join(names[:-1])
    return f"Did you mean {f'{listed} or {names[-1]}' if listed else names[-1]}?"


def _parts(name: str) -> list[str]:
    return name.casefold().replace("-", "_").strip("_").split("_")


def _plain(name: str) -> str:
    return "".join(_parts(name))


def _distance(one: str, other: str, limit: int) -> int:
    """Edit distance with transpositions; `limit` + 1 if the lengths differ by more than `limit`."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, char in enumerate(one, start=1):
        row = [i]
        for j, wanted in enumerate(other, start=1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (char != wanted))
            if i > 1 and j > 1 and char == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]

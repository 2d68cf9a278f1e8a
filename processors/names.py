"""Names that a misspelled one may stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["close_names", "did_you_mean"]

_MAX_LENGTH = 64  # of a word that is compared: names are shorter, and a file's key may be of any length
_MAX_NAMES = 4  # more than this are no guess


def close_names(word: str, known: Iterable[str], *, more: int = 0) -> list[str]:
    """The known names that `word` may stand for, the nearest first; empty if none is near.

    A name that differs by its separators comes before all others, then those of which `word` is the
    beginning or a whole part, then those at the least edit distance: 1 for up to five letters, 2 for up to
    eight, else 3; `more` edits are allowed where few names are known.
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
    """The question, as in `Did you mean --top-k or --top-p?`; empty without names."""
    if not names:
        return ""
    listed = ", ".join(names[:-1])
    return f"Did you mean {f'{listed} or {names[-1]}' if listed else names[-1]}?"


def _parts(name: str) -> list[str]:
    return name.casefold().replace("-", "_").strip("_").split("_")


def _plain(name: str) -> str:
    return "".join(_parts(name))


def _distance(one: str, other: str, limit: int) -> int:
    """Edits from one to the other: insertion, deletion, replacement, or two neighbours in turn."""
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

"""Lark rules for bracketed, comma-separated members in any order, or in a fixed one.

Brackets and commas are terminals of the grammar, with the white space that may stand beside them.

The rule of the remaining members has a 64-bit parameter: a bit for each member that may come once, and a
counter for the others. llguidance expands the rule for a parameter value only when a text reaches it, so the
2^n sets of members are never all expanded.
Source: https://github.com/guidance-ai/llguidance/blob/main/docs/parametric.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

__all__ = ["MAX_BOUND", "MAX_COUNT", "MAX_ONCE", "MAX_UNCOUNTED", "Bag", "Brackets", "in_a_row", "spelled"]

MAX_ONCE = 48  # members that come at most once, one bit each, if a counter is needed as well
MAX_UNCOUNTED = 64  # the same limit without a counter
MAX_COUNT = 60_000  # limit of the counter, which uses the bits above
MAX_BOUND = 16  # limit of `least` and `most` if both kinds occur: one condition for each split
_COUNT = f"[{MAX_ONCE}:64]"


@dataclass(frozen=True, slots=True)
class Brackets:
    """The terminals of an opening and a closing bracket, and of both with nothing between them."""

    opening: str
    closing: str
    empty: str


@dataclass(frozen=True, slots=True)
class Bag:
    """Symbols in any order: all of `needed`, each of `once` at most once, each of `many` any number of times.

    `least` and `most` bound the total number.
    """

    needed: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    many: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None


def spelled(bag: Bag, brackets: Brackets, name: str) -> dict[str, str]:
    """Return the Lark rules {name: body} of a bag; `name` is the start rule."""
    least = max(0, bag.least - len(bag.needed))
    all_came = [f"is_ones([0:{len(bag.needed)}])"] if bag.needed else []
    # No rule only passes its parameter to another rule: llguidance 1.9.1 loses the count there.
    steps = list(_steps(bag))
    first = [f"{step.symbol} {name}_end::{step.start}" for step in steps if step.start is not None]
    more = [f"COMMA {step.symbol} {name}_end::{step.change}{_if(step.conditions)}" for step in steps]
    end = f'""{_if([*all_came, *_at_least(bag, least)])}'
    whole = [f"{brackets.opening} ({' | '.join(first)}) {brackets.closing}"] if first else []
    empty = [] if bag.needed or least else [brackets.empty]
    return {name: " | ".join([*whole, *empty]), f"{name}_end::_": " | ".join([end, *more])}


def in_a_row(
    members: Sequence[tuple[str, bool]], many: Sequence[str], brackets: Brackets, name: str
) -> dict[str, str]:
    """Return the Lark rules of (symbol, is required) in this order, followed by any number of `many`."""
    row = [
        _Member(symbol, f"(COMMA {symbol}){'' if is_needed else '?'}", is_needed)
        for symbol, is_needed in members
    ]
    if many:
        other = f"({' | '.join(many)})"
        row.append(_Member(f"{other} (COMMA {other})*", f"(COMMA {other})*", is_needed=False))
    if not row:
        return {name: brackets.empty}
    whole, rules = _row(row, name)
    empty = "" if any(member.is_needed for member in row) else f" | {brackets.empty}"
    return {name: f"{brackets.opening} {whole.first} {brackets.closing}{empty}", **rules}


@dataclass(frozen=True, slots=True)
class _Member:
    """One member or several: at least one of them, the first without a comma; each of them with one."""

    first: str
    later: str
    is_needed: bool


def _row(row: Sequence[_Member], name: str) -> tuple[_Member, dict[str, str]]:
    """Return members in this order as one, and its rules.

    The rules are a balanced tree, because llguidance recurses over rules.
    """
    if len(row) == 1:
        return row[0], {}
    middle = len(row) // 2
    (left, begin), (right, end) = _row(row[:middle], f"{name}_l"), _row(row[middle:], f"{name}_r")
    first = f"{left.first} {right.later}" + ("" if left.is_needed else f" | {right.first}")
    rules = {f"{name}_first": first, f"{name}_later": f"{left.later} {right.later}"}
    is_needed = left.is_needed or right.is_needed
    return _Member(f"{name}_first", f"{name}_later", is_needed), {**rules, **begin, **end}


@dataclass(frozen=True, slots=True)
class _Step:
    """One member of a bag: the parameter after it if it is first (None: never first), change, conditions."""

    symbol: str
    start: int | None
    change: str
    conditions: tuple[str, ...]


def _steps(bag: Bag) -> Iterator[_Step]:
    for bit, symbol in enumerate(bag.needed):
        is_again = bit > 0 and bag.needed[bit - 1] == symbol  # equal symbols are adjacent, and used in order
        before = (f"bit_set({bit - 1})",) if is_again else ()
        yield _Step(symbol, None if is_again else 1 << bit, f"set_bit({bit})", (f"bit_clear({bit})", *before))
    room = None if bag.most is None else bag.most - len(bag.needed)  # for members that are not required
    if room is not None and room <= 0:
        return
    below = () if room is None else tuple(_at_most(bag, room - 1))
    for bit, symbol in enumerate(bag.once, len(bag.needed)):
        yield _Step(symbol, 1 << bit, f"set_bit({bit})", (f"bit_clear({bit})", *below))
    is_counted = bag.many and (bag.least > len(bag.needed) or room is not None)
    for symbol in bag.many:
        if is_counted:
            yield _Step(symbol, 1 << MAX_ONCE, f"incr({_COUNT})", below)
        else:
            yield _Step(symbol, 0, "_", below)


def _at_least(bag: Bag, count: int) -> list[str]:
    """Return the condition that at least `count` optional members came."""
    if not count:
        return []
    if not bag.many or not bag.once:
        return [_came(bag, "ge", count)]
    ways = range(min(count, len(bag.once)) + 1)
    return [_any(f"and({_bits(bag, 'ge', one)}, ge({_COUNT}, {count - one}))" for one in ways)]


def _at_most(bag: Bag, count: int) -> list[str]:
    """Return the condition that at most `count` optional members came."""
    if not bag.many or not bag.once:
        return [_came(bag, "le", count)]
    ways = range(min(count, len(bag.once)) + 1)
    return [_any(f"and({_bits(bag, 'le', one)}, le({_COUNT}, {count - one}))" for one in ways)]


def _came(bag: Bag, compare: str, count: int) -> str:
    return _bits(bag, compare, count) if bag.once else f"{compare}({_COUNT}, {count})"


def _bits(bag: Bag, compare: str, count: int) -> str:
    start = len(bag.needed)
    return f"bit_count_{compare}([{start}:{start + len(bag.once)}], {min(count, len(bag.once))})"


def _any(conditions: Iterable[str]) -> str:
    return reduce("or({}, {})".format, conditions)


def _if(conditions: Iterable[str]) -> str:
    """Return the `%if` clause that all of these hold; "" without conditions."""
    text = reduce(lambda all_, one: f"and({all_}, {one})" if all_ else one, conditions, "")
    return f" %if {text}" if text else ""

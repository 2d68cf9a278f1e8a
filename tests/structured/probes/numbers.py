"""Bounds and multiples."""

from __future__ import annotations

from itertools import combinations

from tests.structured.probes.probe import Probe, judged

WHOLE = (-13, -6, -5, -4, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 15, 99, 100, 101, 123, 124, 1000)
BROKEN = (-5.5, -5.25, -0.5, 0.5, 1.5, 2.25, 2.5, 2.75, 9.99, 10.01, 12.5, 0.1, 0.15)
BOUNDS = ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum")
VALUES = {"exclusiveMaximum": 10, "exclusiveMinimum": -5, "maximum": 12, "minimum": 3, "multipleOf": 3}
HUGE = 10**17


def _numbers():
    for kind, pool in (("integer", WHOLE), ("number", WHOLE + BROKEN)):
        mark = ":integer" if kind == "integer" else ""
        for keyword in BOUNDS:
            for value in (VALUES[keyword], -5, 0, 100):
                yield judged(f"{keyword}{mark}", {"type": kind, keyword: value}, *pool, "a")
            yield judged(f"{keyword}{mark}:fraction", {"type": kind, keyword: 2.5}, *pool)
            yield judged(f"{keyword}{mark}:fraction", {"type": kind, keyword: -5.25}, *pool)
            huge = {"type": kind, keyword: HUGE}
            for bound in (HUGE - 1, HUGE + 1):
                schema = {"type": kind, keyword: bound}
                yield judged(f"{keyword}{mark}:huge", schema, HUGE - 2, HUGE - 1, HUGE, HUGE + 1, HUGE + 2, 3)
            yield judged(f"{keyword}{mark}:huge", huge, HUGE - 2, HUGE - 1, HUGE, HUGE + 1, HUGE + 2, 3)
        yield judged(f"multipleOf{mark}", {"type": kind, "multipleOf": 3}, *pool)
        yield judged(f"multipleOf{mark}", {"type": kind, "multipleOf": 5}, *pool)
        yield judged(f"multipleOf{mark}:fraction", {"type": kind, "multipleOf": 2.5}, *pool, 7.5, 20)
        yield judged(f"multipleOf{mark}:large", {"type": kind, "multipleOf": 5000}, 0, 5000, 10000, 5001, 50)
    decimal = {"type": "number", "multipleOf": 0.01}
    yield Probe("multipleOf:fraction", decimal, ("1", "1.5", "-1.25"), ("0.155", "1.001"))
    for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
        plain = "minimum" if keyword == "exclusiveMinimum" else "maximum"
        old = {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "type": "number",
            plain: 3,
            keyword: True,
        }
        yield judged(f"{keyword}:boolean", old, 2, 3, 4)
        yield judged(f"{keyword}:boolean", {**old, "type": "integer"}, 2, 3, 4)


def _pairs():
    for first, second in combinations(sorted(VALUES), 2):
        for kind, pool in (("integer", WHOLE), ("number", WHOLE + BROKEN)):
            schema = {"type": kind, first: VALUES[first], second: VALUES[second]}
            yield judged(f"{first}+{second}", schema, *pool)


def _other_way():
    """Bounds of which the pairs above show one alone."""
    for first, low, second, high in (
        ("exclusiveMaximum", 10, "maximum", 6),
        ("exclusiveMinimum", 3, "minimum", -5),
    ):
        for kind, pool in (("integer", WHOLE), ("number", WHOLE + BROKEN)):
            yield judged(f"{first}+{second}", {"type": kind, first: low, second: high}, *pool)


def _standings():
    others = ("a", None, [1], {"a": 1})
    for keyword, value in VALUES.items():
        yield judged(f"{keyword}:untyped", {keyword: value}, *WHOLE, *BROKEN, *others)
        yield judged(
            f"{keyword}:union", {"type": ["number", "null"], keyword: value}, *WHOLE, *BROKEN, *others
        )
        yield judged(f"{keyword}:union", {"type": ["integer", "string"], keyword: value}, *WHOLE, *others)
        yield judged(f"{keyword}:foreign", {"type": "string", keyword: value}, "a", "13", 4)
        yield judged(
            f"{keyword}:fraction:union", {"type": ["number", "null"], keyword: 2.5}, *WHOLE, *BROKEN, None
        )
        yield judged(f"{keyword}:fraction:untyped", {keyword: 2.5}, *WHOLE, *BROKEN, None)


PROBES = [
    judged("type", {"type": "integer"}, *WHOLE, 0.5, "a", None, 12345678901234567890),
    judged("type", {"type": "number"}, *WHOLE, *BROKEN, "a", None, 1e100),
    Probe("type", {"type": "integer"}, ("0", "-1", "10"), ("01", "1.5", "+1", "1e")),
    Probe("type", {"type": "number"}, ("0", "-1.5", "1e5", "1E-2"), ("01", "1.", ".5", "+1", "NaN")),
    *_numbers(),
    *_pairs(),
    *_other_way(),
    *_standings(),
]

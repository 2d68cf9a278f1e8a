"""scripts/bench/speculate.py on the fake model: the clock is reckoned, so each figure is exact."""

from dataclasses import replace
from itertools import product

import pytest
from speculate import DraftGain, best, break_even, measure_drafts

from gencli.core.events import Token
from gencli.engine.engine import Engine
from gencli.errors import GenerationError
from tests.engine.harness import TOKENIZER, request
from tests.speculative.timed import Ticking, TimedDrafter, TimedRunner

PROMPT = "abc"


def continued(num_tokens):
    """The prompt and what follows it."""
    on = Engine(TimedRunner(Ticking()), TOKENIZER)
    on.submit(request(PROMPT, chain="ignore_eos=true | temperature=0", max_tokens=num_tokens))
    ids = [token for event in on.run() if isinstance(event, Token) for token in event.ids]
    return (*TOKENIZER.encode(PROMPT), *ids)


def gains(lengths, *, right=1.0, rows=1, cost=0.1, row=0.05, **options):
    clock = Ticking()
    drafter = TimedDrafter([continued(100)], clock, right=right, cost=cost)
    told = {"steps": 6, "max_tokens": 60} | options
    told |= {"rows": rows, "lengths": lengths, "clock": clock}
    return list(measure_drafts(TimedRunner(clock, row=row), TOKENIZER, drafter, [PROMPT], **told))


def test_right_drafts_bring_what_the_formula_says():
    for rows, length in product([1, 3], [0, 1, 4]):
        (gain,) = gains([length], rows=rows)
        row = 0.05 * length * rows
        assert (gain.rows, gain.drafts, gain.tokens_per_forward) == (rows, length, length + 1), (length, rows)
        assert gain.acceptance == (1 if length else None), (length, rows)
        assert (gain.draft, gain.verify) == pytest.approx((0.1 * length, row)), (length, rows)
        assert gain.plain_tokens_per_second == pytest.approx(rows), (length, rows)
        assert gain.speedup == pytest.approx((length + 1) / (1 + 0.1 * length + row)), (length, rows)
        assert gain.expected == pytest.approx(gain.speedup), (length, rows)


def test_drafts_that_never_stand_cost_what_they_cost():
    (gain,) = gains([4], right=0.0)
    assert (gain.acceptance, gain.tokens_per_forward) == (0, 1)
    assert gain.speedup == pytest.approx(1 / 1.6) == pytest.approx(gain.expected)


def test_all_lengths_are_tried_with_a_plain_step_before_each():
    assert [gain.drafts for gain in gains([0, 2, 1, 3])] == [0, 2, 1, 3]


def test_texts_that_are_too_short_for_the_drafts_are_refused():
    with pytest.raises(GenerationError, match="too short"):
        gains([20], max_tokens=10)


def line(rows, drafts, speedup):
    return DraftGain(rows, drafts, 1.0, speedup, 1.0, 0.5, 0.1, 0.1, speedup, speedup)


def test_break_even_lies_where_the_best_number_gains_nothing():
    cases = [((2.0, 1.5, 1.1), None), ((2.0, 1.5, 0.5), 8), ((0.9, 0.8, 0.7), 0), ((1.5, 0.5, 0.4), 2)]
    for speeds, rows in cases:
        lines = [line(n, 2, speed) for n, speed in zip((1, 4, 16), speeds, strict=True)]
        lines += [replace(one, drafts=3, speedup=0.3) for one in lines]
        lines += [line(n, 0, 1.0) for n in (1, 4, 16)]
        found = break_even(lines)
        assert found == (None if rows is None else pytest.approx(rows)), speeds
        assert [top.drafts for top in best(lines)] == [2 if speed > 1 else 0 for speed in speeds], speeds

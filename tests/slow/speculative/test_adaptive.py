"""As many drafts as pay, none included; the clock is reckoned, so each figure is exact."""

from itertools import product

from gencli.engine.engine import Engine
from gencli.speculative.adaptive_drafts import AdaptiveDrafter, speedup
from tests.engine.harness import TOKENIZER, Token, request
from tests.speculative.test_adaptive import PROMPT, gain, timed
from tests.speculative.timed import Ticking, TimedDrafter, TimedRunner


def test_useless_drafts_cost_3_percent_at_most_and_end_within_64_tokens():
    for rows, cost in product((1, 4), (0.01, 0.1, 0.3, 1.0)):
        ratio, inner = gain(128, right=0.0, cost=cost, rows=rows)
        assert ratio >= 0.97, (rows, cost)
        asked = sorted({length - len(PROMPT) for length, _ in inner.asked})
        assert [length for length in asked if 16 < length < 64] == [], (rows, cost)


def test_good_drafts_come_near_to_the_best_length():
    for right, cost, least in ((0.6, 0.1, 0.85), (0.8, 0.1, 0.8), (0.95, 0.1, 0.75), (0.95, 0.3, 0.85)):
        best = max(speedup(right, length, draft=cost * length, verify=0.05 * length) for length in range(17))
        ratio, _ = gain(300, right=right, cost=cost)
        assert ratio >= least * best, (right, cost, least)


def test_drafts_that_become_good_are_taken_up_again():
    plain_ids, _, _ = timed(600)
    clock = Ticking()
    inner = TimedDrafter([PROMPT + plain_ids["0", 0]], clock, right=0.0, cost=0.05)
    on = Engine(TimedRunner(clock), TOKENIZER, drafter=AdaptiveDrafter(inner, clock=clock), clock=clock)
    on.submit(request("abc", key=0, chain="ignore_eos=true", max_tokens=600))
    tokens = 0
    for event in on.run():
        tokens += len(event.ids) if isinstance(event, Token) else 0
        inner.right = float(tokens > 100)
    assert max(most for length, most in inner.asked if length > 300) >= 8

"""No step feeds more tokens than it may, drafts included; and what is cut or waits changes no text."""

import time
from dataclasses import replace

from gencli.core.request import Drafting, Guidance
from gencli.engine.scheduler import fitting
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.drafter import SuffixDrafter
from processors.request_values import Verification
from tests.engine.harness import Watched, request
from tests.speculative.cases import LETTERS, WIDTH, outcomes

ROWS = 6


def requests(policies, *, drafts=5, guided=False):
    for i in range(3 * ROWS):
        drafting = Drafting("", drafts, 0.0, Verification(policies[i % len(policies)]))
        text = "abcabcdabc" * (1 + 9 * (i % 3))
        one = request(text, key=i, chain=f"{LETTERS} | ignore_eos=true", max_tokens=40, jump="off")
        yield replace(one, drafting=drafting, guidance=Guidance(1.5 if guided and i % 2 else 1.0))


def run(rows, **options):
    """Outcomes, how many drafts stood, and the steps."""
    runner = Watched(WIDTH, context=4096)
    drafter = AdaptiveDrafter(SuffixDrafter(), clock=time.perf_counter)
    found, stood = outcomes(rows, runner=runner, drafter=drafter, **options)
    return found, stood, [(plan.num_tokens, len(plan.feeds)) for plan in runner.plans]


def test_prompts_are_read_beside_drafts():
    long = request("abcd" * 200, key="long", chain=LETTERS, max_tokens=2)
    rows = [*list(requests(["match"]))[: ROWS - 1], long]
    _, _, steps = run(rows, max_batch=ROWS, step_tokens=32)
    assert sum(tokens > 12 for tokens, _ in steps) >= 800 // 32


def test_of_drafts_that_do_not_fit_the_longest_are_cut():
    runs = {0: (1, 2, 3, 4), 1: (5,), 2: (6, 7, 8)}
    assert fitting(runs, {0: 1, 1: 1, 2: 1}, 5) == {0: (1, 2), 1: (5,), 2: (6, 7)}
    assert fitting(runs, {0: 1, 1: 1, 2: 2}, 5) == {0: (1,), 1: (5,), 2: (6,)}
    assert fitting(runs, {0: 1, 1: 1, 2: 1}, -3) == {0: (), 1: (), 2: ()}
    assert fitting({}, {}, 5) == {}

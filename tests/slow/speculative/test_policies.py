"""Where drafts have a say in a text, nothing else has: not the neighbours, not the batch, not the clock."""

from dataclasses import replace

from gencli.core.request import Drafting
from gencli.models.other_runners import FakeRunner
from processors.request_values import Verification
from tests.slow.speculative.test_identity import plain
from tests.speculative.cases import WIDTH, everything, outcomes
from tests.speculative.test_policies import DRAFTERS, drafters, mixed


def check_company(least, requests):
    expected, stood = outcomes(requests, drafter=drafters(), max_batch=64)
    assert stood > len(requests) / 2, least
    other, _ = outcomes(requests[::-1], drafter=drafters(step=3.0), max_batch=5, step_tokens=16)
    assert other == expected, least
    for part in (requests[::7], requests[3::5]):
        found, _ = outcomes(part, drafter=drafters(), max_batch=2)
        assert found == {key: expected[key] for key in found}, least


def test_neighbours_batches_order_and_clock_change_no_text():
    check_company(0.2, list(mixed(least=0.2))[::2])


def test_a_full_memory_changes_no_text():
    requests = list(mixed())[::3]
    expected, _ = outcomes(requests, drafter=drafters(), max_batch=16)
    runner = FakeRunner(WIDTH, memory_lanes=5)
    assert outcomes(requests, drafter=drafters(), runner=runner, max_batch=16)[0] == expected


def test_requests_that_match_keep_their_text_beside_others():
    requests = list(mixed(tokens=3))
    found, _ = outcomes(requests, drafter=drafters(), max_batch=32)
    kept = [one for one in requests if not one.drafts_decide]
    keys = [(one.id, sample) for one in kept for sample in range(one.n)]
    assert len(keys) > 10
    assert {key: found[key] for key in keys} == {key: plain()[key] for key in keys}


def test_greedy_texts_are_the_same_under_rejection():
    for name in DRAFTERS:
        greedy = [one for one in everything() if one.chain.is_greedy or one.draw == "greedy"]
        drafting = Drafting(name, 3, 0.0, Verification("rejection"))
        found, stood = outcomes([replace(one, drafting=drafting) for one in greedy], drafter=drafters())
        assert found == {key: plain()[key] for key in found}, name
        assert stood > 0, name

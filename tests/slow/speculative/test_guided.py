"""Drafts beside guidance and contrast: p is what the formula and the chain make of both models' logits."""

from gencli.core.step import Feed, StepPlan
from gencli.speculative.draft_model import ModelDrafter
from processors.catalog import GrammarParams
from processors.chain import Chain
from tests.processors.rejection_grid import Gap
from tests.speculative.distribution import chances, counted
from tests.speculative.test_guided import LETTERS, crowd, folded, guided, model, run

LANES = 50


CUTS = "frequency=0.8 | temperature=1.5 | top_p=0.95"


SHORT = GrammarParams("a[ab]c|b[cd]a|[cd]{2}[ab]", "regex")


SUPPORTS = {"letters": (Chain.parse(LETTERS).stages, 3), "grammar": ((("grammar", SHORT),), 200)}


def own(one, output):
    """The target's logits without guidance."""
    return model().forward(StepPlan((Feed(0, 0, (*one.prompt_ids, *output)),)))[0]


def check_distribution(kind, support):
    stages, most = SUPPORTS[support]
    chain = Chain((*stages, *Chain.parse(CUTS).stages))
    one = guided("rejection", kind=kind, chain=chain, max_tokens=most, n=1000)
    counts, stood = counted(
        one,
        runner=model(lanes=2 * LANES + 2),
        amateurs={"weak": model(5, lanes=LANES + 1)},
        drafter=ModelDrafter(model(lanes=LANES + 1)),
        max_batch=LANES,
    )
    assert not Gap.of(counts, chances(one, lambda output: folded(one, output))).is_wide, (kind, support)
    assert Gap.of(counts, chances(one, lambda output: own(one, output))).is_wide, (kind, support)
    assert stood > 0, (kind, support)


def test_texts_have_the_distribution_of_the_guided_target():
    check_distribution("cutoff", "letters")


def check_company(requests):
    expected, stood = run(requests, max_batch=64)
    assert stood > 2.1 * len(requests)
    assert run(requests[::-1], max_batch=5, step_tokens=16)[0] == expected
    for part in (requests[::5], requests[7:8]):
        found, _ = run(part, max_batch=2)
        assert found == {key: expected[key] for key in found}
    found, _ = run(requests[1::3], max_batch=16, memory={"memory_lanes": 9})
    assert found == {key: expected[key] for key in found}


def test_neighbours_batches_order_and_a_full_memory_change_no_text():
    check_company(list(crowd())[::3])

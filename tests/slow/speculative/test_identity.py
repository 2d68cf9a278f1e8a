"""With drafts and without: the same tokens, texts and ends, for each drafter, stage and number of drafts."""

from itertools import count, product

from gencli.core.request import Drafting, Limits, Request
from gencli.models.fake import FakeRunner
from gencli.runtime.drafters import make_drafter
from gencli.runtime.models import ModelChoice, load
from gencli.speculative.adaptive import AdaptiveDrafter
from gencli.speculative.fallback import FallbackDrafter
from processors.chain import Chain
from tests.speculative.cases import WIDTH, drafting, everything, outcomes
from tests.speculative.test_identity import DRAFTERS, known, named, plain


def check(name, tokens):
    """Every request with so many drafts at a time."""
    found, stood = outcomes(drafting(everything(), name, tokens), drafter=named(name), max_batch=64)
    assert found == plain(), (name, tokens)
    assert stood > 20, (name, tokens)


def check_beside(name):
    """Every other request without drafts."""
    requests = drafting(everything(), name, 3, every=2)
    found, stood = outcomes(requests, drafter=named(name), max_batch=7, step_tokens=32)
    assert found == plain(), name
    assert stood > 10, name


def check_full_memory(name):
    requests, runner = drafting(everything(), name, 4), FakeRunner(WIDTH, memory_lanes=5)
    assert outcomes(requests, drafter=named(name), runner=runner, max_batch=16)[0] == plain(), name


def test_every_stage_gives_the_text_that_it_gives_without():
    for name, tokens in (("suffix", 8), ("half", 4), ("text", 3), ("known", 1)):
        check(name, tokens)


def test_rows_with_drafts_and_without_stand_side_by_side():
    check_beside("half")


def test_each_row_has_the_drafter_that_it_names():
    requests = everything()
    for i, name in enumerate(DRAFTERS):
        part = drafting(requests[i :: len(DRAFTERS)], name, 1 + i)
        requests[i :: len(DRAFTERS)] = part
    every = FallbackDrafter([named(name) for name in DRAFTERS])
    assert outcomes(requests, drafter=every, max_batch=32)[0] == plain()


def test_what_the_clock_says_changes_no_text():
    ticks = count()
    drafter = AdaptiveDrafter(DRAFTERS["text"](), name="text", clock=lambda: next(ticks) ** 2 % 97 / 10)
    assert outcomes(drafting(everything(), "text", None), drafter=drafter, max_batch=16)[0] == plain()


def test_memory_that_runs_out_changes_no_text():
    check_full_memory("half")


CHAINS = ["temperature=0", "temperature=0.8", "repetition=1.2 | temperature=1 | min_p=0.05 | top_p=0.95"]


PROMPTS = ["Once upon a time", "The little dog ran to the red house. The little dog", "Tom said:", "A"]


def check_on_a_model(name):
    choice = ModelChoice("tiny", dtype="float32", max_batch=12)
    loaded = load(choice)
    options = {"runner": loaded.runner, "tokenizer": loaded.tokenizer, "max_batch": 12}

    def run(drafter):
        requests = [
            Request(
                str(i),
                tuple(loaded.tokenizer.encode(text)),
                Chain.parse(chain),
                seed=i,
                limits=Limits(40),
                drafting=Drafting(drafter, 1 + i % 8),
            )
            for i, (text, chain) in enumerate(product(PROMPTS, CHAINS))
        ]
        return outcomes(requests, drafter=make_drafter(drafter, loaded, choice), **options)

    found, stood = run(name)
    assert found == run("none")[0], name
    assert stood > 0, name


def test_on_a_model_no_token_changes():
    for name in ("auto", "early-exit"):
        check_on_a_model(name)

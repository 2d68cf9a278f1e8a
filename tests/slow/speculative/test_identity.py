"""With drafts and without: the same tokens, texts and ends, for each drafter, stage and number of drafts."""

import time
from dataclasses import replace
from functools import lru_cache
from itertools import count, product

from gencli.core.request import Drafting, Limits, Request
from gencli.models.other_runners import FakeRunner
from gencli.runtime.model_loading import ModelChoice, load
from gencli.runtime.wiring import make_drafter
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.combined_drafters import AutoDrafter, FallbackDrafter
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.drafter import Drafter, NgramDrafter, SuffixDrafter
from processors.chain import Chain
from tests.engine.harness import request
from tests.speculative.cases import WIDTH, drafting, everything, outcomes
from tests.speculative.turned import turned


def half_right():
    """The target's own table, but for every other token that was chosen last."""
    runner, other = FakeRunner(WIDTH), FakeRunner(WIDTH, seed=1)
    runner.table = runner.table.clone()
    runner.table[1::2] = other.table[1::2]
    return runner


class Known(Drafter):
    """Proposes what it was told that comes, with every third run wrong at its end."""

    def __init__(self, texts):
        self._texts = texts

    def propose(self, asks):
        return [self._run(tuple(ask.tokens), ask.most) for ask in asks]

    def _run(self, tokens, most):
        for text in self._texts:
            if text[: len(tokens)] == tokens and len(text) > len(tokens):
                run = text[len(tokens) :][:most]
                return run if len(tokens) % 3 else (*run[:-1], (run[-1] + 1) % 250)
        return ()


def known():
    texts = {key: ids for key, (ids, _) in plain().items()}
    return Known([one.prompt_ids + texts[one.id, j] for one in everything() for j in range(one.n)])


DRAFTERS = {
    "ngram": NgramDrafter,
    "suffix": SuffixDrafter,
    "auto": lambda: AutoDrafter([SuffixDrafter(), NgramDrafter()]),
    "model": lambda: ModelDrafter(FakeRunner(WIDTH)),
    "half": lambda: ModelDrafter(half_right()),
    "text": lambda: turned(half_right()),
    "known": known,
}


@lru_cache
def plain():
    """The outcomes without drafts."""
    return outcomes([replace(one, jump="off") for one in everything()], max_batch=64)[0]


def named(name):
    return AdaptiveDrafter(DRAFTERS[name](), name=name, clock=time.perf_counter)


def test_the_context_may_end_inside_a_draft():
    for context, name in product((11, 12, 14, 17, 30), ("ngram", "half", "model", "text")):
        one = request("abcabcdabc", key="k", chain="allowed=[97,98,99,100]", max_tokens=200)
        expected, _ = outcomes([one], runner=FakeRunner(WIDTH, context=context))
        options = {"runner": FakeRunner(WIDTH, context=context), "drafter": named(name)}
        found, _ = outcomes(drafting([one], name, 5), **options)
        assert found == expected, (context, name)
        assert [end[1] for _, end in found.values()] == ["length"], (context, name)


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

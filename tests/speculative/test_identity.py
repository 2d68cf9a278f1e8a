"""With drafts and without: the same tokens, texts and ends, for each drafter, stage and number of drafts."""

import time
from dataclasses import replace
from functools import lru_cache
from itertools import product

from gencli.models.fake import FakeRunner
from gencli.speculative.adaptive import AdaptiveDrafter
from gencli.speculative.auto import AutoDrafter
from gencli.speculative.base import Drafter
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.ngram import NgramDrafter
from gencli.speculative.suffix import SuffixDrafter
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

"""Two sides on one engine: in the order of the prompts, each text as in a run of its own."""

import pytest

from gencli.config.layers import gather_side
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from gencli.runtime.comparing import SideRun, compare, compare_models
from gencli.runtime.compiled_grammars import grammar_env, make_compiler
from gencli.runtime.model_loading import Loaded
from gencli.text.tokenizer import ByteTokenizer
from processors.explain_rows import divergence
from tests.engine.harness import engine

PROMPTS = ("the cat", "a", "a long dog " * 40)


def jobs(a, b, **options):
    given = {"model": "fake", "seed": "3", "max_tokens": "15", **options}
    return [gather_side(text, given, {}).job for text in (a, b)]


def compared(a, b, prompts=PROMPTS, *, on=None, **options):
    loaded = Loaded(FakeRunner(), ByteTokenizer())
    compiler = make_compiler(grammar_env(loaded), 30)
    sides = (SideRun(on := on or engine(), loaded, compiler, job) for job in jobs(a, b, **options))
    return [*compare(*sides, prompts)]


def compared_models(a, b, runners, prompts=PROMPTS, **options):
    sides = []
    for runner, job in zip(runners, jobs(a, b, **options), strict=True):
        loaded = Loaded(runner, ByteTokenizer())
        compiler = make_compiler(grammar_env(loaded), 30)
        sides.append(SideRun(engine(runner=runner), loaded, compiler, job))
    return [*compare_models(*sides, prompts)]


def test_a_side_that_cannot_run_is_an_error():
    with pytest.raises(UsageError):
        compared("", "", stop_id=["100000"])


def test_places_of_two_models_are_those_of_both_on_the_text_of_the_first():
    runners = FakeRunner(), FakeRunner(seed=9)
    for one in compared_models("", "", runners, PROMPTS[:2]):
        assert one.parted_at is not None
        before = [*ByteTokenizer().encode(one.prompt)[-1:], *one.a.tokens]
        for place, last in zip(one.places, before, strict=False):
            expected = divergence(*(runner.table[last] for runner in runners))  # it knows one token back
            assert place.divergence.tv == pytest.approx(expected.tv, abs=1e-5)
            assert place.divergence.kl_ab == pytest.approx(expected.kl_ab, abs=1e-4)

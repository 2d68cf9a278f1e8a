"""Compiling a plan: what is known afterwards of the variant that runs."""

from types import SimpleNamespace

import pytest

from gencli.errors import ConfigError
from gencli.runtime.compiled_grammars import Grammars, compile_plan
from gencli.structured.output_spec import Audit, KeywordFinding, Plan, Variant
from gencli.structured.schema_errors import OutOfTime
from processors.errors import GrammarError, GrammarTimeout
from processors.request_values import Constraint


class Grammar:
    warnings = ()


class Compiler:
    """Compiles what it is told to: each back end has a grammar, or raises its error."""

    def __init__(self, **answers):
        self.answers, self.asked, self.seconds = answers, [], []

    def compile(self, constraint, seconds):
        self.asked.append(constraint.backend)
        self.seconds.append(seconds)
        answer = self.answers[constraint.backend]
        if isinstance(answer, Exception):
            raise answer
        return answer


def variant(name, *open_):
    findings = tuple(KeywordFinding(f"/{keyword}", keyword, "check", "too hard") for keyword in open_)
    return Variant(Constraint("json_schema", "{}", name), Audit(name, findings))


BOTH = Plan((variant("xgrammar"), variant("llguidance", "pattern")), seconds=30.0)


def test_the_best_runs_and_the_next_only_where_a_back_end_refuses():
    compiler = Compiler(xgrammar=Grammar(), llguidance=Grammar())
    compiled = compile_plan(BOTH, compiler)
    assert (compiled.variant, compiled.notices, compiler.asked) == (BOTH.variants[0], (), ["xgrammar"])
    compiled = compile_plan(BOTH, Compiler(xgrammar=GrammarError("It cannot."), llguidance=Grammar()))
    assert compiled.variant == BOTH.variants[1]
    assert compiled.notices == (
        "xgrammar: It cannot. llguidance is used instead.",
        "llguidance does not enforce all of this schema.\n  pattern at /pattern: final check (too hard)",
    )


def test_a_compile_that_takes_too_long_is_an_error_and_no_weaker_promise():
    compiler = Compiler(xgrammar=GrammarTimeout("It did not end."), llguidance=Grammar())
    with pytest.raises(OutOfTime, match=r"It did not end\.") as caught:
        compile_plan(BOTH, compiler)
    assert compiler.asked == ["xgrammar"]
    assert "`grammar_timeout`" in caught.value.hint
    assert "`grammar_backend`" in caught.value.hint


def test_where_none_compiles_all_reasons_are_told():
    compiler = Compiler(xgrammar=GrammarError("It cannot."), llguidance=GrammarError("Nor can this."))
    with pytest.raises(ConfigError, match=r"xgrammar: It cannot\. llguidance: Nor can this\."):
        compile_plan(BOTH, compiler)


def test_each_back_end_has_the_time_that_is_left():
    compiler = Compiler(xgrammar=GrammarError("It cannot."), llguidance=Grammar())
    compile_plan(BOTH, compiler)
    first, last = compiler.seconds
    assert 29.0 < last <= first <= 30.0


def test_a_grammar_that_was_late_is_tried_again_where_requests_keep_coming():
    for retries_late in (True, False):
        compiler = Compiler(xgrammar=GrammarTimeout("It did not end."))
        grammars = Grammars(compiler, retries_late=retries_late)
        job = SimpleNamespace(structure=SimpleNamespace(plan=BOTH))
        for _ in range(2):
            with pytest.raises(OutOfTime):
                grammars.compiled(job)
        assert len(compiler.asked) == 1 + retries_late

"""Compiling a plan: what is known afterwards of the variant that runs."""

import json
import threading
from concurrent.futures import Future

import pytest

from gencli.errors import ConfigError
from gencli.runtime import grammars as compiling
from gencli.runtime.grammars import compile_plan
from gencli.structured.plan import Audit, Plan, Variant
from processors.constraint import Constraint
from processors.errors import GrammarError
from processors.grammar.compile.compiler import GrammarCompiler
from tests.processors.grammar.kit import env_of


def test_the_warnings_of_a_back_end_are_kept(capfd):
    schema = json.dumps({"type": "string", "pattern": "^a", "maxLength": 3})
    variant = Variant(Constraint("json_schema", schema, "xgrammar"), Audit("xgrammar"))
    compiler = GrammarCompiler(env_of("toy"))
    found = compile_plan(Plan((variant,)), compiler)
    compiler.close()
    assert any("pattern" in warning for warning in found.warnings)
    assert capfd.readouterr().err == ""


class Grammar:
    warnings = ()


class Compiler:
    """Compiles what is told to, when it is told to."""

    def __init__(self):
        self.futures, self.seconds, self.abandoned = {}, {}, []
        self.started = {name: threading.Event() for name in ("xgrammar", "llguidance")}

    def start(self, constraint, seconds):
        self.seconds[constraint.backend] = seconds
        self.started[constraint.backend].set()
        return self.futures.setdefault(constraint.backend, Future())

    def abandon(self, constraint):
        self.abandoned.append(constraint.backend)

    def ready(self, name):
        self.futures.setdefault(name, Future()).set_result(Grammar())

    def fail(self, name):
        self.futures.setdefault(name, Future()).set_exception(GrammarError(f"{name} cannot"))


def plan_of(*names, seconds=30.0):
    constraints = (Constraint("json_schema", "{}", name) for name in names)
    return Plan(tuple(Variant(one, Audit(one.backend)) for one in constraints), seconds=seconds)


BOTH = plan_of("xgrammar", "llguidance")


@pytest.fixture(autouse=True)
def no_head_start(monkeypatch):
    monkeypatch.setattr(compiling, "_HEAD_START", 0.0)
    monkeypatch.setattr(compiling, "_MOST_PATIENCE", 0.0)


def test_the_first_runs_where_both_are_ready_and_else_the_one_that_is():
    compiler = Compiler()
    compiler.ready("llguidance")
    found = compile_plan(BOTH, compiler)
    assert found.variant.constraint.backend == "llguidance"
    assert compiler.abandoned == ["xgrammar"]
    assert "was not ready" in found.passed_over[0]
    assert all(seconds > 29 for seconds in compiler.seconds.values())  # both have the whole time
    compiler.ready("xgrammar")
    found = compile_plan(BOTH, compiler)
    assert (found.variant.constraint.backend, found.passed_over) == ("xgrammar", ())


def test_a_better_one_is_waited_for_with_patience(monkeypatch):
    monkeypatch.setattr(compiling, "_MOST_PATIENCE", 60.0)
    compiler = Compiler()
    compiler.ready("llguidance")
    thread = threading.Thread(
        target=lambda: compiler.started["llguidance"].wait() and compiler.ready("xgrammar")
    )
    thread.start()
    found = compile_plan(plan_of("xgrammar", "llguidance", seconds=300.0), compiler)
    thread.join()
    assert (found.variant.constraint.backend, compiler.abandoned) == ("xgrammar", [])


def test_the_second_begins_where_the_first_fails_and_not_where_it_is_ready_at_once(monkeypatch):
    monkeypatch.setattr(compiling, "_HEAD_START", 60.0)
    compiler = Compiler()
    compiler.ready("xgrammar")
    compile_plan(BOTH, compiler)
    assert not compiler.started["llguidance"].is_set()
    compiler = Compiler()
    compiler.fail("xgrammar")
    compiler.ready("llguidance")
    found = compile_plan(BOTH, compiler)
    assert found.variant.constraint.backend == "llguidance"
    assert found.passed_over == ("xgrammar: xgrammar cannot",)


def test_where_none_compiles_all_reasons_are_told():
    compiler, names = Compiler(), ("xgrammar", "llguidance")
    for name in names:
        compiler.fail(name)
    with pytest.raises(ConfigError) as caught:
        compile_plan(BOTH, compiler)
    assert all(f"{name} cannot" in str(caught.value) for name in names)

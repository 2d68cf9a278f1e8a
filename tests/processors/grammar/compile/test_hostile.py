"""Hostile grammars: each compiles or is refused by name, and the process goes on."""

import pytest

from processors.errors import GrammarError
from processors.grammar import compile_guards as pace
from processors.grammar import grammar_compiler as trial
from processors.request_values import Constraint
from processors.testing.examples import HOSTILE
from tests.processors.grammar.kit import backend_of, compiled, env_of, legal, vocabulary_of

pytestmark = pytest.mark.usefixtures("own_children")  # it bounds their memory and stack


def test_a_grammar_whose_steps_take_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(trial, "MAX_STEP_SECONDS", 0.01)
    constraint = Constraint("regex", HOSTILE["regex", "nested repeats"](), "xgrammar")
    grammar = backend_of("xgrammar").compile(constraint)
    with pytest.raises(GrammarError, match="the limit is 0.01 s"):
        trial.try_steps(backend_of("xgrammar"), grammar, vocabulary_of())


def test_a_matcher_that_became_too_slow_stops_there_until_it_is_taken_back(monkeypatch):
    monkeypatch.setattr(pace, "MAX_STEP_SECONDS", -1.0)
    monkeypatch.setattr(pace, "WATCHED_SECONDS", -1.0)
    a, b = (env_of("toy").vocabulary.encode(text, special=False)[0] for text in "ab")
    for backend in ("xgrammar", "llguidance"):
        matcher = compiled(backend, "regex", "ab*").matcher()
        assert matcher.accept(a), backend
        assert legal(backend, matcher), backend  # by the clock alone nothing stops
        matcher.rollback(1)
        assert matcher.accept(a), backend
        stopped = legal(backend, matcher), matcher.is_complete(), matcher.is_over()
        assert stopped == ([], True, True), backend
        taken = matcher.accept(b), matcher.fork().accept(b), matcher.forced()
        assert taken == (False, False, b""), backend
        matcher.rollback(1)
        assert a in legal(backend, matcher), backend

"""The compiler: each grammar once, beside other work, kept on disk; what is slow is refused or stopped."""

import json
import os
import threading

import pytest

from processors.errors import GrammarError
from processors.grammar import compile_guards as pace
from processors.grammar import grammar_compiler as trial
from processors.grammar.compile_guards import GrammarStore, is_small
from processors.grammar.grammar_compiler import GrammarCompiler
from processors.request_values import Constraint
from processors.testing.examples import HOSTILE
from tests.processors.grammar.kit import PERSON, TREE, backend_of, compiled, env_of, legal, vocabulary_of

SMALL_SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}}}'
BOUNDED = json.dumps({"type": "string", "maxLength": 9})


@pytest.fixture
def compilers():
    """Makes compilers and ends them."""
    made = []

    def make(vocabulary="toy", **options):
        made.append(GrammarCompiler(env_of(vocabulary), **options))
        return made[-1]

    yield make
    for compiler in made:
        compiler.close()


def schema(text, backend="xgrammar"):
    return Constraint("json_schema", text, backend)


def test_equal_constraints_share_a_grammar_and_different_ones_do_not(compilers):
    for backend in ("trie", "xgrammar", "llguidance"):
        compiler, kind = compilers(), "choice" if backend == "trie" else "json_schema"
        texts = ['["a"]', '["b"]'] if backend == "trie" else [SMALL_SCHEMA, "{}"]
        one, same, other = (compiler.start(Constraint(kind, text, backend)) for text in (texts[0], *texts))
        assert one.result() is same.result(), backend
        assert one.result() is not other.result(), backend
        assert set(compiler.timings) == {Constraint(kind, text, backend) for text in texts}, backend


def test_an_error_is_that_of_every_equal_constraint_and_has_no_time(compilers):
    compiler = compilers()
    for _ in range(2):
        with pytest.raises(GrammarError, match="colour"):
            compiler.compile(schema('{"type": "colour"}'))
    assert compiler.timings == {}


def test_threads_that_ask_at_once_get_the_same_grammar(compilers):
    compiler, found = compilers(), []
    threads = [
        threading.Thread(target=lambda: found.append(compiler.compile(schema(SMALL_SCHEMA))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_each_vocabulary_has_its_own_file(compilers):
    assert compilers()._key(schema(BOUNDED)) == compilers()._key(schema(BOUNDED))
    assert compilers()._key(schema(BOUNDED)) != compilers("no end")._key(schema(BOUNDED))


def test_a_broken_file_is_no_content(tmp_path):
    store = GrammarStore(tmp_path)
    for broken in (b"", b"short", b"\0" * 50):
        store.put("a", b"content")
        assert store.get("a") == b"content"
        (path,) = tmp_path.iterdir()
        path.write_bytes(broken)
        assert store.get("a") is None, broken
    (tmp_path / "file").write_text("")
    store = GrammarStore(tmp_path / "file" / "folder")  # which cannot be made
    store.put("a", b"x")
    assert store.get("a") is None


def test_the_store_drops_what_was_used_longest_ago(tmp_path):
    store = GrammarStore(tmp_path, limit=400)
    for number, name in enumerate("abc"):
        store.put(name, bytes(100))
        os.utime(tmp_path / f"{name}.grammar", (number, number))
    assert store.get("a") == bytes(100)  # used just now
    store.put("d", bytes(100))
    assert [name for name in "abcd" if store.get(name) is None] == ["b"]


SMALL = [
    (Constraint("choice", "[]", "trie"), True),
    (schema(PERSON), False),  # minItems
    (schema(SMALL_SCHEMA), True),
    (schema(TREE), False),
    (schema(BOUNDED), False),
    (schema(BOUNDED, "llguidance"), True),
    (schema(json.dumps({"const": "a" * 5000}), "llguidance"), False),
    (schema("{"), False),
    (schema('{"properties": 3}'), False),
    (schema('["type"]'), False),
    (Constraint("regex", r"\d+-[a-z]*|cat", "xgrammar"), True),
    (Constraint("regex", r"[^x]*", "xgrammar"), False),
    (Constraint("regex", r"(a*)*", "xgrammar"), False),
    (Constraint("regex", r"a{1000000000}", "xgrammar"), False),
    (Constraint("ebnf", 'root ::= "a"', "xgrammar"), False),
    (Constraint("structural_tag", "{}", "xgrammar"), False),
]


def test_only_what_is_surely_cheap_is_compiled_without_a_trial():
    for constraint, small in SMALL:
        assert is_small(constraint) is small, constraint


def test_a_closed_compiler_opens_again(compilers):
    compiler = compilers()
    compiler.compile(schema(SMALL_SCHEMA))
    compiler.close()
    assert compiler.compile(schema("{}")).matcher()


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

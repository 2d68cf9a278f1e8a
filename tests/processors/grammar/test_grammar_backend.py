"""The contract of a grammar back end: accept, refuse, take back, copy, look ahead."""

import json
import random
from itertools import product

import pytest
import torch

from processors.errors import GrammarError
from processors.grammar import llguidance
from processors.grammar.grammar_backend import Ask
from processors.request_values import Constraint
from tests.processors.grammar.kit import (
    GRAMMARS,
    VALUES,
    backend_of,
    compiled,
    env_of,
    legal,
    replay,
    same_language,
    vocabulary_of,
)

BACKENDS = tuple(GRAMMARS)
UNTOUCHED = 7


def test_an_enum_of_json_values_has_the_masks_of_the_plain_back_end():
    for name in ("xgrammar", "llguidance"):
        texts = [json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in VALUES[:6]]
        plain = compiled("trie", "choice", json.dumps(texts))
        ours = compiled(name, "json_schema", json.dumps({"enum": VALUES[:6]}), 0)
        rng = random.Random(name)
        for _ in range(60):
            twin, matcher = plain.matcher(), ours.matcher()
            while choices := legal("trie", twin):
                assert legal(name, matcher) == choices, name
                token = rng.choice(choices)
                assert twin.accept(token), name
                assert matcher.accept(token), name
            assert matcher.is_over(), name


def test_one_call_fills_many_asks_of_mixed_length():
    for name in BACKENDS:
        grammar = compiled(name, *GRAMMARS[name][0])
        matchers = [replay(grammar, legal(name, grammar.matcher())[:n]) for n in (0, 1, 0)]
        token = legal(name, matchers[0])[0]
        masks = torch.full((6, vocabulary_of().words), UNTOUCHED, dtype=torch.int32)
        asks = [Ask(matchers[0], (token,), 0), Ask(matchers[1], (), 2), Ask(matchers[2], (2, token), 3)]
        assert [len(flags) for flags in backend_of(name).fill(asks, masks)] == [2, 1, 1], name
        text = vocabulary_of().text_mask
        assert torch.equal(masks[0] & text, masks[3] & text), name
        assert torch.equal(masks[1] & text, masks[2] & text), name
        assert (masks[4:] == UNTOUCHED).all(), name


def test_the_end_of_a_text_is_refused_and_changes_nothing():
    for name in BACKENDS:
        matcher = compiled(name, *same_language(name, ["ab"])).matcher()
        assert matcher.accept(env_of("toy").vocabulary.encode("ab", special=False)[0]), name
        assert matcher.is_over(), name
        assert not matcher.accept(1), name
        assert (matcher.is_over(), matcher.is_complete()) == (True, True), name


def test_a_kind_that_a_back_end_does_not_know_is_an_error():
    for name in ("xgrammar", "llguidance"):
        with pytest.raises(GrammarError, match="choice"):
            backend_of(name).compile(Constraint("choice", '["a"]', name))


WRONG = [
    ("xgrammar", "json_schema", "{", "JSON"),
    ("xgrammar", "ebnf", "root ::= other", "other"),
    ("xgrammar", "regex", "(a", "Parenthesis|parenthesis|unclosed"),
    ("xgrammar", "json_schema", '{"$ref": "#"}', "Circular"),
    ("xgrammar", "structural_tag", "{}", "structural|Structural"),
    ("llguidance", "json_schema", "{", "json_schema"),
    ("llguidance", "json_schema", "false", "json_schema"),
    ("llguidance", "json_schema", '{"type": "array", "uniqueItems": true}', "uniqueItems"),
    ("llguidance", "json_schema", '{"uniqueItems": true, "x-guidance": {"lenient": true}}', "uniqueItems"),
    ("llguidance", "json_schema", '{"type": "string", "format": "colour"}', "colour"),
    ("llguidance", "json_schema", '{"$ref": "#"}', "No text"),
    ("llguidance", "lark", "start: other", "other"),
    ("llguidance", "lark", 'start: <|user|> "a"', "user"),
    ("llguidance", "regex", "(a", "regex"),
]


def test_a_wrong_grammar_is_an_error_that_says_what_is_wrong(capfd):
    for name, kind, text, said in WRONG:
        with pytest.raises(GrammarError, match=said):
            pytest.fail(f"{name} takes {text}: {backend_of(name).compile(Constraint(kind, text, name))}")
        assert capfd.readouterr().err == "", (name, text)


def test_the_warnings_of_xgrammar_belong_to_the_grammar_and_are_not_printed(capfd):
    schema = json.dumps({"type": "string", "pattern": "^a(?=b)", "maxLength": 3})
    grammar = backend_of("xgrammar").compile(Constraint("json_schema", schema, "xgrammar"))
    assert any("maxLength" in warning for warning in grammar.warnings)
    assert any("Lookahead" in warning for warning in grammar.warnings)
    assert not any("cc:" in warning for warning in grammar.warnings)
    assert capfd.readouterr().err == ""


def test_a_schema_without_conditions_takes_any_json():
    for case in product(("true", "{}"), ("xgrammar", "llguidance")):
        schema, name = case
        matcher = compiled(name, "json_schema", schema).matcher()
        tokens = env_of("toy").vocabulary.encode('{"a":[1,null]}', special=False)
        assert all(map(matcher.accept, tokens)), case
        assert matcher.is_complete(), case


def test_a_step_over_a_limit_has_no_next_token_and_can_be_taken_back(monkeypatch):
    monkeypatch.setitem(llguidance.LIMITS, "step_max_items", 220)
    backend = llguidance.LLGuidanceBackend(env_of("toy"))
    rules = "\n".join(f'r{n}: "y" r{n} | "z" r{n} "w"' for n in range(60))
    lark = f'start: "x" ({" | ".join(f"r{n}" for n in range(60))})\n{rules}'
    matcher = backend.compile(Constraint("lark", lark, "llguidance")).matcher()
    (x,) = env_of("toy").vocabulary.encode("x", special=False)
    masks = torch.full((2, vocabulary_of().words), UNTOUCHED, dtype=torch.int32)

    def fill():
        masks.fill_(UNTOUCHED)
        return backend.fill([Ask(matcher, (), 0)], masks)

    assert fill() == [[False]]
    assert matcher.limit() == ""
    before = masks.clone()
    assert matcher.accept(x)
    assert fill() == [[False]]
    assert not masks[0].any()
    assert "step_max_items: 220" in matcher.limit()
    matcher.rollback(1)
    assert fill() == [[False]]
    assert torch.equal(masks, before)


def test_a_first_step_over_a_limit_is_not_taken_for_an_empty_grammar(monkeypatch):
    monkeypatch.setitem(llguidance.LIMITS, "step_max_items", 1)
    backend = llguidance.LLGuidanceBackend(env_of("toy"))
    with pytest.raises(GrammarError, match="step_max_items"):
        backend.compile(Constraint("lark", 'start: start start | "a" | "b" start', "llguidance"))

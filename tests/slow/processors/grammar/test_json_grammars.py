"""White space in masks of JSON: tokens of a real vocabulary, and many documents in lockstep."""

import json
from pathlib import Path
from random import Random

import pytest

from gencli.structured.backend_choice import choose
from gencli.structured.output_spec import PlanRequest
from tests.processors.grammar.kit import compiled, legal, vocabulary_of
from tests.processors.grammar.test_json_grammars import BACKENDS, NUMBER, record

SCHEMAS = Path(__file__).parents[3] / "data" / "schemas.jsonl"


@pytest.mark.parametrize("backend", BACKENDS)
def test_masks_agree_with_what_is_accepted_where_a_token_has_a_separator(backend):
    """Tokens as ` ,` and `" :` of a real vocabulary, which close a value, make space and go on."""
    env_name = "qwen2"
    tokens = [
        (token, data)
        for token, data in enumerate(vocabulary_of(env_name).token_bytes)
        if data.strip() != data.rstrip(b",: \n") and len(data) > 1 and (b"," in data or b":" in data)
    ]
    schema = record(a={"type": "string"}, b={"type": "array", "items": NUMBER}, c={})
    grammar = compiled(backend, "json_schema", json.dumps(schema), vocabulary=env_name)
    singles = {
        data: token for token, data in enumerate(vocabulary_of(env_name).token_bytes) if len(data) == 1
    }
    for begun in ('{"a', '{"a"', '{"a":"b', '{"a":"b"', '{"a":"b","b":[1', '{"a":"b","b":[1],"c":{"d":{}'):
        matcher = grammar.matcher()
        assert all(matcher.accept(singles[bytes([byte])]) for byte in begun.encode())
        allowed = set(legal(backend, matcher, env_name))
        for token, data in tokens:
            accepted = matcher.accept(token)
            matcher.rollback(int(accepted))
            assert accepted == (token in allowed), (begun, data)


def legal_bytes(backend, matcher):
    tokens = vocabulary_of().token_bytes
    return {tokens[token][0] for token in legal(backend, matcher) if len(tokens[token]) == 1}


@pytest.mark.parametrize("backend", BACKENDS)
def test_documents_are_those_without_white_space(backend):
    """Random documents in lockstep: with white space and without, the same bytes may follow.

    llguidance compiles a schema itself where there is no white space, and gets Lark otherwise.
    """
    draws, space = Random(3), set(b" \n\r\t")
    for schema in [json.loads(line)["schema"] for line in SCHEMAS.read_text().splitlines()[::20]]:
        grammars = []
        for whitespace in (8, 0):
            (variant,) = choose(schema, PlanRequest(backend, whitespace=whitespace)).variants
            grammars.append(compiled(backend, "json_schema", variant.constraint.text, whitespace))
        matchers, text = [grammar.matcher() for grammar in grammars], b""
        for _ in range(80):
            spaced, compact = (legal_bytes(backend, matcher) for matcher in matchers)
            assert spaced - space == compact - space, (schema, text)
            assert matchers[0].is_complete() == matchers[1].is_complete(), (schema, text)
            if not compact - space:
                break
            signs = sorted(compact & set(b'",:{}[]')) if draws.random() < 0.5 else []
            text += bytes([draws.choice(signs or sorted(compact - space))])
            token = vocabulary_of().token_bytes.index(text[-1:])
            assert all(matcher.accept(token) for matcher in matchers), (schema, text)

"""White space in masks of JSON over a real vocabulary, whose tokens hold several signs."""

import json

import pytest

from tests.processors.grammar.backends.test_json_space import BACKENDS, NUMBER, record
from tests.processors.grammar.kit import compiled, legal, vocabulary_of


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

"""What comes next in a document whose white space is not decided yet: a good guess, and always legal."""

import json
from itertools import product

import pytest

from processors.base import Env
from processors.grammar.closing import Position
from processors.grammar.forced_tokens import CanonicalTokenizer, JsonContext, SeparatorModel
from processors.grammar.grammar_backend import load_backend
from processors.grammar.grammar_state import predict_next
from processors.request_values import Constraint
from processors.testing import ToyVocabulary

TOY = ToyVocabulary()
ENV = Env(TOY.vocab_size, TOY, TOY.eos_ids)
SCHEMA = {
    "type": "object",
    "properties": {key: {"type": "boolean"} for key in ("a", "b", "c")} | {"d": {"type": "string"}},
    "required": ["a", "b", "c", "d"],
    "additionalProperties": False,
}


def ahead(backend, begun, whitespace=8, noise=None):
    constraint = Constraint("json_schema", json.dumps(SCHEMA), backend, whitespace)
    matcher = load_backend(backend, ENV).compile(constraint).matcher()
    canonical, separators = CanonicalTokenizer(TOY), SeparatorModel.usual(TOY)
    for token in TOY.encode(begun, special=False):
        assert matcher.accept(token)
        separators.add(token, TOY.token_bytes[token])
    spot = Position(matcher, begun.encode(), separators.signs, canonical)
    found = [token for token, _ in predict_next(spot, separators, noise)]
    assert all(map(matcher.accept, found))
    return b"".join(TOY.token_bytes[token] for token in found).decode()


NEXT = [
    ('{"a": t', 'rue, "b": '),
    ('{"a": true,', ' "b": '),
    ('{"a":true,"b":true,', '"c":'),
    ('{"a": true, "b": true,', ' "c": '),
    ('{"a": true,\n  "b": true,', '\n  "c": '),
    ('{"a": true,\n  "b": true,\n', '  "c": '),
    ('{\n\t"a": true,\n\t"b": true,', '\n\t"c": '),
    ('{"a": true, "b": true, "c": true, "d": "a"', "}"),
]


def test_parts_follow_each_other_as_before_or_as_usual():
    for backend, (begun, next_one) in product(("xgrammar", "llguidance"), NEXT):
        assert ahead(backend, begun).startswith(next_one), (backend, begun)


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
def test_inside_a_string_nothing_is_guessed(backend):
    assert not ahead(backend, '{"a": true, "b": true, "c": true, "d": "a')


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
def test_without_white_space_keys_are_forced(backend):
    assert ahead(backend, '{"a":true,', whitespace=0).startswith('"b":')


@pytest.mark.parametrize("sign", [" ", "\n", "\t"])
def test_noise_chooses_between_what_has_come_as_often(sign):
    """The draw will choose the token with the most noise, if the model finds them as likely."""
    begun, (token,) = '{"a": true,\n"b":\ttrue,', TOY.encode(sign, special=False)

    def noise(place, ids):
        return [9.0 * (place == 0 and known == token) for known in ids]

    assert ahead("xgrammar", begun, noise=noise)[:1] == sign


SIGNS = [
    ('{"a": -1.5e3,', JsonContext(b": a,", depth=1)),
    ('["x\\\\"', JsonContext(b'[""', depth=1)),
    ('["x\\"', JsonContext(b'["', in_string=True, depth=1)),
    ('["x\\', JsonContext(b'["', in_string=True, is_escaped=True, depth=1)),
]


def test_of_a_text_its_signs_are_known():
    for text, signs in SIGNS:
        assert JsonContext().after(text.encode()) == signs, text
        assert JsonContext().after(text[:3].encode()).after(text[3:].encode()) == signs, text

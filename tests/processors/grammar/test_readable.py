"""Documents stay within the limits of readers where their grammars know none."""

import json
import random

from gencli.json_text import DOCUMENT, parse_json
from processors.base import Env
from processors.grammar.closing import Position
from processors.grammar.forced_tokens import CanonicalTokenizer, JsonContext
from processors.grammar.grammar_backend import load_backend, mask_of, words
from processors.grammar.grammar_state import Readable
from processors.request_values import MAX_DEPTH, MAX_EXPONENT, MAX_NUMBER, Constraint
from tests.processors.grammar.kit import Words, ids_of

LONG = [b"e8214", b"E+8214", b"8214", b"-8214", b"[[", b"ud8", b"d8", b"\\ud83d", b"7e9999", b"99"]
VOCABULARY = Words((b"", *LONG, *(bytes([byte]) for byte in range(256))), frozenset((0,)))
ENV = Env(VOCABULARY.vocab_size, VOCABULARY, ())
BACKENDS = {name: load_backend(name, ENV) for name in ("xgrammar", "llguidance")}
CANONICAL = CanonicalTokenizer(VOCABULARY)
READABLE = Readable(VOCABULARY.token_bytes, ENV.vocab_size)


def spot_of(backend, constraint, document):
    matcher = BACKENDS[backend].compile(constraint).matcher()
    return Position(matcher, b"", JsonContext() if document == "json" else None, CANONICAL)


def legal(backend, spot, document):
    mask, _ = mask_of(BACKENDS[backend], spot.matcher, words(ENV.vocab_size))
    READABLE.restrict(mask, spot, document)
    return {VOCABULARY.token_bytes[token] for token in ids_of(mask) if 0 < token < ENV.vocab_size}


def after(backend, constraint, text, document="json"):
    spot = spot_of(backend, constraint, document)
    assert all(spot.accept(CANONICAL.byte_ids[byte]) for byte in text.encode()), text
    return legal(backend, spot, document)


def of_schema(backend, schema):
    return Constraint("json_schema", json.dumps(schema), backend)


def test_a_number_that_no_reader_takes_is_not_begun():
    for backend in BACKENDS:
        number = of_schema(backend, {"type": "array", "items": {"type": "number"}})
        assert after(backend, number, "[72").isdisjoint({b"e8214", b"E+8214"}), backend
        assert {b"e", b"8214", b"."} <= after(backend, number, "[72"), backend
        assert after(backend, number, "[72e").isdisjoint({b"8214", b"-8214"}), backend
        assert {b"-", b"9", b"99"} <= after(backend, number, "[72e"), backend
        assert after(backend, number, "[72e-82").isdisjoint({b"99", b"8214"}), backend
        assert b"9" in after(backend, number, "[72e-82"), backend
        assert b"9" not in after(backend, number, "[72e-" + "1" * MAX_EXPONENT), backend
        for digits in ("1" * MAX_NUMBER, "0." + "1" * (MAX_NUMBER - 2)):
            assert b"1" not in after(backend, number, f"[{digits}"), backend
            assert b"1" in after(backend, number, f"[{digits[:-1]}"), backend


def test_what_the_schema_demands_is_still_possible():
    long = of_schema("llguidance", {"const": 10**200 + 7})
    assert b"0" in after("llguidance", long, str(10**200)[:MAX_NUMBER])
    for backend in BACKENDS:
        digest = of_schema(backend, {"type": "string", "pattern": "^[0-9a-f]{12}$"})
        assert {b"4", b"8214"} <= after(backend, digest, '"a3e123'), backend


def test_lists_are_nested_within_the_depth_that_is_checked():
    for backend in BACKENDS:
        lists = of_schema(backend, {"type": "array"})
        assert after(backend, lists, "[" * (MAX_DEPTH - 1)).isdisjoint({b"[["}), backend
        assert b"[" in after(backend, lists, "[" * (MAX_DEPTH - 1)), backend
        assert b"[" not in after(backend, lists, "[" * MAX_DEPTH), backend


def test_half_a_surrogate_pair_is_not_begun():
    for text, gone in (('"', b"\\ud83d"), ('"\\', b"ud8"), ('"\\u', b"d8"), ('"\\ud', b"8"), ('"\\uD', b"C")):
        assert gone not in after("xgrammar", of_schema("xgrammar", {"type": "string"}), text), text
    assert b"7" in after("xgrammar", of_schema("xgrammar", {"type": "string"}), '"\\ud')
    assert b"ud8" in after("xgrammar", of_schema("xgrammar", {"type": "string"}), '"\\\\')


def test_in_the_midst_of_other_text_only_the_json_is_restricted():
    call = 'start: TEXT "<" call\nTEXT: /[^<]*/\ncall: %json {"type": "array", "items": {"type": "number"}}'
    for text, is_free in (("see 1e999", True), ("<[1e999", False), ("<[ 1, 1e999", False)):
        found = after("llguidance", Constraint("lark", call, "llguidance"), text, "parts")
        assert (b"9" in found) == is_free, text


def test_what_is_drawn_at_random_is_read():
    """Each walk prefers the tokens that lead out of the limits, and ends its document when it is long."""
    rng = random.Random(5)
    for backend in BACKENDS:
        for schema in ({"type": "array", "items": {"type": "number"}}, {"type": "object"}, {"type": "array"}):
            for _ in range(12):
                spot = spot_of(backend, of_schema(backend, schema), "json")
                for step in range(220):
                    allowed = legal(backend, spot, "json")
                    wanted = b"]}" if step > 60 else b"[eE0123456789.\\ud-"
                    closing = [
                        data for data in allowed if step > 60 and data in (b"]", b"}", b'"', b":", b"0")
                    ]
                    liked = closing or [data for data in sorted(allowed) if data[0] in wanted]
                    if not allowed or (spot.matcher.is_complete() and (step > 60 or not liked)):
                        break
                    data = rng.choice(sorted(liked or allowed))
                    assert spot.accept(VOCABULARY.token_bytes.index(data))
                text = b"".join(VOCABULARY.token_bytes[token] for token in spot.tokens)
                if spot.matcher.is_complete() and is_text(text):
                    parse_json(text.decode())


def is_text(data):
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def test_the_limits_are_within_those_of_the_reader():
    assert DOCUMENT.max_digits >= 10**MAX_EXPONENT - 1
    assert DOCUMENT.max_digits >= MAX_NUMBER
    assert DOCUMENT.max_depth > MAX_DEPTH

"""With `any` properties come in any order; required ones have to, none comes twice."""

import json
import random
from itertools import permutations

from gencli.structured.backend_choice import candidate, choose
from gencli.structured.rewrite_objects import MAX_BRANCHED
from tests.structured.probes.acceptor import acceptor

BACKENDS = ["xgrammar", "llguidance"]


I, S, O = {"type": "integer"}, {"type": "string"}, {"type": "object"}  # noqa: E741


VALUES = {"a": 1, "b": [1], "c": {"x": 1, "y": None}, "d": True}


INNER = {**O, "properties": {"x": I, "y": {"type": "null"}}, "required": ["x", "y"]}


INNER = {**INNER, "additionalProperties": False}


PROPERTIES = {"a": I, "b": {"type": "array", "items": I}, "c": INNER, "d": {"type": "boolean"}}


OBJECT = {**O, "properties": PROPERTIES, "required": ["a", "c"], "additionalProperties": False}


def many(count, **more):
    return {**O, "properties": {f"p{n}": I for n in range(count)}, "required": ["p0"], **more}


def accepts(backend, schema, **options):
    return acceptor(backend, json.loads(candidate(schema, backend, **options).variant.constraint.text))


def shuffled(value, seed):
    """With the properties of all objects in another order."""
    if isinstance(value, dict):
        names = random.Random(seed).sample(list(value), len(value))
        return {name: shuffled(value[name], seed) for name in names}
    return [shuffled(item, seed) for item in value] if isinstance(value, list) else value


def test_each_order_is_allowed_inside_too():
    for backend in BACKENDS:
        check = accepts(backend, OBJECT, any_order=True)
        for names in permutations(VALUES):
            assert check(json.dumps({name: VALUES[name] for name in names})), names
        assert check('{"c": {"y": null, "x": 1}, "a": 1}'), backend


def test_what_is_missing_or_stands_twice_is_refused_in_any_order():
    for backend in BACKENDS:
        for text in [
            "{}",
            '{"a": 1}',
            '{"a": 1, "c": {"x": 1}}',
            '{"c": {"x": 1, "y": null}, "a": 1, "a": 2}',
            '{"d": 1}',
        ]:
            assert not accepts(backend, OBJECT, any_order=True)(text), (backend, text)


def test_without_it_the_order_is_that_of_the_schema():
    for backend in BACKENDS:
        check = accepts(backend, OBJECT)
        assert check('{"a": 1, "c": {"x": 1, "y": null}}'), backend
        assert not check('{"c": {"x": 1, "y": null}, "a": 1}'), backend


def test_llguidance_takes_any_order_of_many_properties():
    for count in [5, 16, 64]:
        check = accepts("llguidance", many(count), any_order=True)
        whole = {f"p{n}": n for n in range(count)}
        for seed in range(3):
            text = json.dumps(shuffled(whole, seed))
            assert check(text), count
            assert not check(text[:-1] + ', "p1": 1}'), count
        assert check('{"p3": 1, "p0": 2}'), count
        assert not check('{"p3": 1}'), count


def test_what_is_too_large_keeps_the_order_of_the_schema_and_the_audit_says_so():
    for count, backend in [(MAX_BRANCHED + 1, "xgrammar"), (65, "llguidance"), (65, "xgrammar")]:
        found = candidate(many(count), backend, any_order=True)
        (note,) = (one.reason for one in found.variant.audit.findings if one.pointer == "/properties")
        assert note.startswith("in the schema's order: there are more than"), count
        assert not found.is_exact, count
        check = acceptor(backend, json.loads(found.variant.constraint.text))
        assert check('{"p0": 0, "p1": 1}'), count
        assert not check('{"p1": 1, "p0": 0}'), count


def test_a_larger_object_is_left_to_the_back_end_that_takes_any_order():
    assert choose(many(MAX_BRANCHED), any_order=True).variants[0].audit.backend == "xgrammar"
    assert choose(many(MAX_BRANCHED + 1), any_order=True).variants[0].audit.backend == "llguidance"
    assert choose(many(MAX_BRANCHED + 1)).variants[0].audit.backend == "xgrammar"


def test_a_pattern_and_free_names_come_before_declared_ones():
    schema = {**O, "properties": {"xa": I, "b": I}, "required": ["b"], "patternProperties": {"^x": S}}
    schema = {**schema, "properties": {"b": I}, "additionalProperties": {"type": "null"}}
    found = candidate(schema, "llguidance", any_order=True)
    assert found.is_exact
    check = acceptor("llguidance", json.loads(found.variant.constraint.text))
    assert check('{"y": null, "x1": "a", "b": 1, "x2": "b"}')
    for wrong in ('{"x1": 1, "b": 1}', '{"y": 1, "b": 1}', '{"b": null}', '{"x1": "a"}'):
        assert not check(wrong)


def test_below_what_only_the_back_end_can_write_the_order_is_that_of_the_schema_and_the_audit_says_so():
    node = {**INNER, "properties": {**INNER["properties"], "below": {"$ref": "#/$defs/odd"}}}
    odd = {**O, "patternProperties": {r"(a)\1": {"$ref": "#/$defs/node"}}, "additionalProperties": False}
    schema = {**O, "properties": {"n": {"$ref": "#/$defs/node"}, "i": I}, "additionalProperties": False}
    found = candidate({**schema, "$defs": {"node": node, "odd": odd}}, "llguidance", any_order=True)
    reasons = {one.pointer: one.reason for one in found.variant.audit.findings}
    assert reasons["/$defs/node/properties"] == "in the schema's order, because the part around it is"
    check = acceptor("llguidance", json.loads(found.variant.constraint.text))
    assert check('{"i": 1, "n": {"x": 1, "y": null}}')
    assert not check('{"i": 1, "n": {"y": null, "x": 1}}')


def test_properties_in_any_order_are_counted():
    for least, most in [(2, 3), (0, 2), (3, None)]:
        bounds = {"minProperties": least, **({} if most is None else {"maxProperties": most})}
        for rest, names in ((False, "cdea"), (I, "czya")):
            schema = {**O, "properties": dict.fromkeys("abcde", I), "required": ["a"], **bounds}
            found = candidate({**schema, "additionalProperties": rest}, "llguidance", any_order=True)
            check = acceptor("llguidance", json.loads(found.variant.constraint.text))
            assert found.is_exact, least
            for count in range(1, 5):
                text = json.dumps(dict.fromkeys(names[-count:], 1))
                assert check(text) == (least <= count <= (most or 9)), text


def test_the_audit_of_an_exact_schema_stays_exact():
    found = candidate(OBJECT, "llguidance", any_order=True)
    assert found.is_exact
    assert {one.verdict for one in found.variant.audit.findings} == {"mask"}

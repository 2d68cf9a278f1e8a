"""With `any`, the properties of small objects come in any order; required ones have to, none comes twice."""

import json
from itertools import permutations

import pytest

from gencli.structured.audit.choose import candidate, choose
from gencli.structured.rewrite.orders import MAX_ORDERED
from tests.structured.probes.acceptor import acceptor

BACKENDS = ["xgrammar", "llguidance"]
VALUES = {"a": 1, "b": [1], "c": {"x": 1, "y": None}, "d": True}
INNER = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "null"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
PROPERTIES = {
    "a": {"type": "integer"},
    "b": {"type": "array", "items": {"type": "integer"}},
    "c": INNER,
    "d": {"type": "boolean"},
}
OBJECT = {"type": "object", "properties": PROPERTIES, "required": ["a", "c"], "additionalProperties": False}


def accepts(backend, schema, **options):
    return acceptor(backend, json.loads(candidate(schema, backend, **options).variant.constraint.text))


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_order_is_allowed_inside_too(backend):
    check = accepts(backend, OBJECT, any_order=True)
    for names in permutations(VALUES):
        assert check(json.dumps({name: VALUES[name] for name in names})), names
    assert check('{"c": {"y": null, "x": 1}, "a": 1}')


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "text",
    ["{}", '{"a": 1}', '{"a": 1, "c": {"x": 1}}', '{"c": {"x": 1, "y": null}, "a": 1, "a": 2}', '{"d": 1}'],
)
def test_what_is_missing_or_stands_twice_is_refused_in_any_order(backend, text):
    assert not accepts(backend, OBJECT, any_order=True)(text)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_it_the_order_is_that_of_the_schema(backend):
    check = accepts(backend, OBJECT)
    assert check('{"a": 1, "c": {"x": 1, "y": null}}')
    assert not check('{"c": {"x": 1, "y": null}, "a": 1}')


def test_a_larger_object_keeps_the_order_of_the_schema_and_the_audit_says_so():
    names = [f"p{n}" for n in range(MAX_ORDERED + 1)]
    schema = {"type": "object", "properties": {key: {"type": "integer"} for key in names}}
    found = candidate(schema, "llguidance", any_order=True)
    assert "anyOf" not in json.loads(found.variant.constraint.text)
    (note,) = (one.reason for one in found.variant.audit.findings if one.pointer == "/properties")
    assert f"more than {MAX_ORDERED} properties" in note


def test_many_small_objects_do_not_grow_without_bound():
    many = {
        f"o{n}": {**OBJECT, "title": str(n), "properties": {**PROPERTIES, f"p{n}": {}}} for n in range(300)
    }
    few = {f"o{n}": {**INNER, "required": [], "properties": {f"x{n}": {}, "y": {}}} for n in range(2_000)}
    for properties in (many, few):
        plan = choose({"type": "object", "properties": properties}, any_order=True)
        assert all(len(variant.constraint.text) < 1 << 20 for variant in plan.variants)


def test_the_audit_of_an_exact_schema_stays_exact():
    found = candidate(OBJECT, "llguidance", any_order=True)
    assert found.is_exact
    assert {one.verdict for one in found.variant.audit.findings} == {"mask"}

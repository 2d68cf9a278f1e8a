"""The audit says what is enforced by keyword, and never more; each shape has probes of both kinds."""

import json

from gencli.structured.audit import UNIQUE_NAMES, audit, audit_json, shapes_of, without_formats
from gencli.structured.backend_choice import candidate, choose
from gencli.structured.flat_schema import SUPPORT
from gencli.structured.json_schema import walk
from gencli.structured.output_spec import PlanRequest
from scripts.measure_schemas import BACKENDS
from scripts.probe_backends import PAGE, page
from scripts.probe_backends import SUPPORT as SUPPORT_FILE
from tests.structured.probes.acceptor import Refused
from tests.structured.probes.verdicts import PROBES, changes, is_telling, shapes

PERSON = {
    "type": "object",
    "title": "A person",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "tags": {"type": "array", "uniqueItems": True},
    },
    "required": ["name"],
}


def findings(schema, backend):
    return {one.pointer: one for one in audit(schema, backend).findings}


def test_each_keyword_has_a_verdict_at_its_pointer():
    found = findings(PERSON, "llguidance")
    assert {pointer: one.verdict for pointer, one in found.items()} == {
        "/type": "mask",
        "/properties": "mask",
        "/required": "mask",
        "/properties/name/type": "mask",
        "/properties/name/minLength": "mask",
        "/properties/tags/type": "mask",
        "/properties/tags/uniqueItems": "check",
    }
    assert audit(PERSON, "llguidance").open == (found["/properties/tags/uniqueItems"],)
    tight = findings({"type": "string", "pattern": "b"}, "xgrammar")["/pattern"]
    reason = "the mask also refuses some valid values (pattern:search)"
    assert (tight.verdict, tight.reason) == ("mask", reason)


def test_what_json_schema_does_not_have_or_no_probe_shows_is_not_understood_and_annotations_have_no_verdict():
    notes = {"title": "a", "description": "b", "default": 1, "examples": [1], "x-order": 3, "$comment": "c"}
    assert audit(notes, "xgrammar").findings == ()
    unprobed = {"type": "object", "propertyNames": {"pattern": "^a", "maxLength": 3, "minLength": 2}}
    assert findings(unprobed, "xgrammar")["/propertyNames"].verdict == "unknown"
    for schema, pointer in [
        ({"requierd": ["a"]}, "/requierd"),
        ({"type": "string", "format": "password"}, "/format"),
        ({"type": "array", "items": {"nullable": True}}, "/items/nullable"),
    ]:
        assert findings(schema, "xgrammar")[pointer].verdict == "unknown", schema
        assert candidate(schema, "xgrammar").is_exact, schema
        found = choose(schema).variants[0].audit
        assert [one.pointer for one in found.findings if one.verdict == "unknown"] == [pointer], schema


def test_a_rewritten_schema_is_told_by_the_places_of_the_one_given():
    for backend in BACKENDS:
        schema = {
            **PERSON,
            "allOf": [{"not": {"properties": {"name": {"const": "x"}}, "required": ["name"]}}],
        }
        found = {one.pointer: one for one in candidate(schema, backend).variant.audit.findings}
        assert found.pop("/properties/tags").keyword == UNIQUE_NAMES, (
            backend
        )  # anything may stand in it, objects too
        given = {f"{pointer}/{keyword}" for pointer, below in walk(schema) for keyword, _ in shapes_of(below)}
        assert found.keys() == given, backend
        assert found["/allOf"].reason == "rewritten: merged", backend


OPEN = {"properties": {"a": {"pattern": r"(x)\1"}}}
NEEDS = {"required": ["b"], "properties": {"b": {"minLength": 3}}}


def test_what_hangs_on_a_condition_that_stays_open_is_not_called_enforced():
    for schema, hanging in [
        (
            {"if": OPEN, "then": NEEDS, "else": {"maxProperties": 1}},
            [
                "/if",
                "/then",
                "/else",
                "/then/required",
                "/then/properties/b/minLength",
                "/else/maxProperties",
            ],
        ),
        ({"if": {"not": OPEN}, "then": NEEDS}, ["/if", "/if/not", "/then/required"]),
        ({"not": {**OPEN, "required": ["b"]}}, ["/not", "/not/required"]),
        ({"oneOf": [OPEN, NEEDS]}, ["/oneOf"]),
    ]:
        schema = {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            **schema,
        }
        found = {one.pointer: one.verdict for one in candidate(schema, "llguidance").variant.audit.findings}
        assert [place for place in hanging if found.get(place) == "mask"] == [], schema
        assert found["/properties/a/type"] == "mask", schema


def test_patterns_beside_listed_names_are_known():
    names, of_p = {"enum": ["p", "q"]}, {"^p": {"type": "integer"}}
    schema = {"type": "object", "propertyNames": names, "patternProperties": of_p}
    for backend in ("xgrammar", "llguidance"):
        found = {one.pointer: one.verdict for one in candidate(schema, backend).variant.audit.findings}
        assert found["/patternProperties"] == found["/patternProperties/^p/type"] == "mask", backend
        assert "unknown" not in found.values(), backend


def test_the_audit_as_json():
    found = audit_json(choose(PERSON))
    assert (found["backend"], found["exact"], len(found["variants"])) == ("llguidance", False, 2)
    assert {
        "pointer": "/properties/tags/uniqueItems",
        "keyword": "uniqueItems",
        "verdict": "check",
        "reason": "no grammar can be made of it",
    } in found["variants"][0]["findings"]
    json.dumps(found)


def test_a_format_that_nobody_looks_at_is_not_said_to_be_checked():
    plan = choose({"type": "string", "format": "idn-hostname"})
    verdicts = {one.keyword: one.verdict for one in plan.variants[0].audit.findings}
    assert verdicts["format"] == "check"
    left = without_formats(plan).variants[0].audit.open
    assert [(one.keyword, one.verdict) for one in left] == [("format", "unknown")]
    assert "`formats`" in left[0].reason
    enforced = choose({"type": "string", "format": "date"}, PlanRequest("llguidance"))
    assert without_formats(enforced) == enforced


def refusing(backend, schema):
    raise Refused


def test_the_better_is_a_change_too():
    for backend in BACKENDS:
        worse = {shape: grade for shape, grade in SUPPORT[backend].shapes.items() if grade != "exact"}
        perfect = dict.fromkeys(SUPPORT[backend].shapes, "exact")
        assert changes(perfect, SUPPORT[backend].shapes).keys() == worse.keys(), backend


def test_the_table_in_the_docs_is_the_recorded_one():
    text = PAGE.read_text(encoding="utf-8")
    assert page(json.loads(SUPPORT_FILE.read_text(encoding="utf-8")), text) == text


def test_each_probe_has_the_shape_that_it_names():
    wrong = [(probe.shape, json.dumps(probe.schema)) for probe in PROBES if probe.shape not in shapes(probe)]
    assert [case for case in wrong if case[0] != "type"] == []


def test_each_shape_is_shown_texts_of_both_kinds():
    telling = [probe for probe in PROBES if is_telling(probe)]
    accepting = {probe.shape for probe in telling}
    refusing = {probe.shape for probe in telling if probe.refuse}
    # These refuse nothing: they only stand for themselves.
    harmless = {
        "maxContains:untyped",
        "minContains:untyped",
        "propertyNames:",
        "propertyNames::union",
        "propertyNames::untyped",
    }
    assert accepting - refusing <= harmless


def test_names_may_repeat_where_they_are_free_and_not_where_a_list_closes_them():
    closed = {"type": "object", "additionalProperties": False}
    typed, anything = "the mask allows a free name twice", {"minimum": 3}
    any_type = f"{typed} in values of any type"
    for schema, places in [
        ({**closed, "properties": {"a": {"type": "string"}}}, {}),
        ({"type": "object", "propertyNames": {"enum": ["a"]}, "additionalProperties": {"type": "null"}}, {}),
        ({**closed, "properties": {"a": {}}}, {"/properties/a": any_type}),
        ({**closed, "properties": {"a": anything, "b": {"type": "null"}}}, {"/properties/a": any_type}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {**closed, "properties": {"a": anything}}}},
         {"/$defs/x/properties/a": any_type}),
        ({"type": "object", "required": ["0"]}, {"": any_type}),
        ({"type": "object", "propertyNames": {"enum": ["a"]}}, {"": any_type}),
        ({"type": "object", "additionalProperties": {"type": "null"}}, {"": typed}),
    ]:  # fmt: skip
        for backend in BACKENDS:
            found = candidate(schema, backend).variant.audit.findings
            assert {one.pointer: one.reason for one in found if one.keyword == UNIQUE_NAMES} == places, schema

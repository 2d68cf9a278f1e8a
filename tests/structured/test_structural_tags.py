"""`--structural-tag`: checked part by part, with pointers, and run by xgrammar."""

import json

import pytest

from gencli.structured.schema_errors import SchemaError
from gencli.structured.structural_tags import plan_structural_tag
from tests.helpers.refusal import refusal
from tests.structured.backends import SCHEMAS, accepts

NUMBER = {"type": "json_schema", "json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
TAG = {"type": "tag", "begin": "<t>", "content": NUMBER, "end": "</t>"}
A = {"type": "const_string", "value": "a"}
WRONG = {"type": "json_schema", "json_schema": {"enum": []}}
FREE = {"type": "triggered_tags", "triggers": ["<t"], "tags": [TAG]}


def plan(form):
    return plan_structural_tag(json.dumps({"type": "structural_tag", "format": form}), SCHEMAS)


def test_a_tag_is_enforced_white_space_capped_and_findings_point_into_it():
    for form, right, wrong in [
        (A, "a", "b"),
        (TAG, '<t>{"a": 1}</t>', "<t>1</t>"),
        (FREE, 'x<t>{"a": 1}</t>y', "x<t>1</t>"),
        ({**FREE, "at_least_one": True}, '<t>{"a":1}</t>', ""),
        ({"type": "tags_with_separator", "tags": [TAG], "separator": ";"}, '<t>{"a":1}</t>', "x"),
        ({"type": "sequence", "elements": [A, {"type": "regex", "pattern": r"\w(?#!)"}]}, "ab", "aé"),
        ({"type": "or", "elements": [A, {"type": "grammar", "grammar": 'root ::= "\\x41B"'}]}, "AB", "b"),
        ({"type": "repeat", "min": 2, "max": 3, "content": A}, "aa", "a"),
        ({"type": "star", "content": A}, "aaa", "ab"),
        ({"type": "optional", "content": A}, "", "aa"),
        ({"type": "any_text", "excludes": ["<"]}, "abc", "a<"),
        ({"type": "dispatch", "rules": [["<n>", A]]}, "x<n>ay", "x<n>b"),
        ({**TAG, "end": ["</t>", "</u>"]}, '<t>{"a":1}</u>', '<t>{"a":1}</v>'),
        ({**NUMBER, "max_whitespace_cnt": 1}, '{ "a": 1}', '{  "a": 1}'),
    ]:
        accept = accepts(plan(form).variants[0].constraint)
        assert accept(right), form
        assert not accept(wrong), form
    accept = accepts(plan(TAG).variants[0].constraint)
    assert accept('<t>{%s"a": 1}</t>' % (" " * 20))
    assert not accept('<t>{%s"a": 1}</t>' % (" " * 21))
    inner = {"type": "json_schema", "json_schema": {"not": {"const": 1}}}
    (finding,) = plan({**TAG, "content": inner}).variants[0].audit.open
    assert finding.pointer == "/format/content/json_schema/not"


def test_a_wrong_part_is_named_by_its_pointer():
    for form, pointer, message in [
        ({"type": "tagg"}, "/format/type", "no format 'tagg'"),
        ("a", "/format", "A format .* is expected"),
        ({**A, "valu": "b"}, "/format", "has no field 'valu'"),
        ({"type": "const_string"}, "/format", "lacks its field 'value'"),
        ({**A, "value": 1}, "/format/value", "A text is expected"),
        ({**FREE, "at_least_one": 1}, "/format/at_least_one", "True or false is expected"),
        ({**FREE, "triggers": [""]}, "/format/triggers", "A list of texts is expected"),
        ({**FREE, "triggers": ["<q"]}, "/format/tags/0/begin", "begins with 0 of the triggers"),
        ({**FREE, "triggers": ["<", "<t"]}, "/format/tags/0/begin", "begins with 2 of the triggers"),
        ({**FREE, "tags": [A]}, "/format/tags/0", "A tag is expected"),
        ({**FREE, "tags": []}, "/format/tags", "at least one tag"),
        ({"type": "sequence", "elements": []}, "/format/elements", "at least one format"),
        (
            {"type": "sequence", "elements": [A, {"type": "token", "token": 3}]},
            "/format/elements/1",
            "tokens",
        ),
        (
            {"type": "star", "content": {"type": "regex", "pattern": "a(?=b)"}},
            "/format/content/pattern",
            "column 2",
        ),
        ({"type": "grammar", "grammar": "root ::= x"}, "/format/grammar", "no rule 'x'"),
        ({"type": "repeat", "min": 2, "max": 1, "content": A}, "/format", "minimum is above the maximum"),
        ({**NUMBER, "max_whitespace_cnt": 0}, "/format/max_whitespace_cnt", "whole number from 1"),
        ({**NUMBER, "style": "glm_xml"}, "/format/style", '"json"'),
        ({**TAG, "content": WRONG}, "/format/content/json_schema/enum", "the list is empty"),
    ]:
        with pytest.raises(SchemaError, match=message) as failure:
            plan(form)
        assert failure.value.pointer == pointer, form


def test_what_is_no_structural_tag_is_refused():
    for text in ["{", "[]", '{"type": "x"}', '{"type": "structural_tag", "format": {}, "x": 1}']:
        assert refusal(SchemaError, plan_structural_tag, text, SCHEMAS), text


def test_the_documents_in_a_finished_text_are_checked():
    for text, faults in [
        ("no tag", 0),
        ('x<t>{"a": 1}</t>y<t>{"a": 2}</t>', 0),
        ('<t>{"a": "<t>"}</t>', 1),
        ('<t>{"a": 1, "a": 2}</t>', 1),
        ('<t>{"a": 1}', 1),
        ("<t>{", 2),
    ]:
        assert len(plan(FREE).check.faults(text)) == faults, text

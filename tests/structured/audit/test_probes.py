"""The installed back ends do what the recorded table says, and each shape has probes of both kinds."""

import json

from gencli.structured.audit.support import SUPPORT
from scripts.probe_backends import PAGE, page
from scripts.probe_backends import SUPPORT as SUPPORT_FILE
from tests.structured.probes.acceptor import VERSIONS, Refused
from tests.structured.probes.probe import validator_of
from tests.structured.probes.removals import IDLE, removals
from tests.structured.probes.verdicts import PROBES, changes, is_telling, shapes, table

BACKENDS = sorted(VERSIONS)


def refusing(backend, schema):
    raise Refused


MINDS = {
    "loose": lambda backend, schema: lambda text: True,
    "tight": lambda backend, schema: lambda text: False,
    "refused": refusing,
}


def test_a_back_end_that_changes_its_mind_about_any_keyword_is_found_out():
    for backend in BACKENDS:
        for mind in MINDS:
            recorded = {shape for shape, grade in SUPPORT[backend].shapes.items() if grade == "exact"}
            refusable = {probe.shape for probe in PROBES if probe.refuse and is_telling(probe)}
            expected = recorded & refusable if mind == "loose" else recorded
            changed = changes(table(backend, acceptor=MINDS[mind]), SUPPORT[backend].shapes)
            assert expected, (backend, mind)
            assert dict.fromkeys(expected, f"exact -> {mind}").items() <= changed.items(), (backend, mind)


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


def test_each_construct_of_a_shape_has_an_instance_that_only_it_refuses():
    shown = {}
    for probe in filter(is_telling, PROBES):
        refused = [json.loads(text) for text in probe.refuse if is_json(text)]
        for name, schema in removals(probe.shape, probe.schema):
            is_valid = validator_of(schema).is_valid
            shown[probe.shape, name] = shown.get((probe.shape, name)) or any(map(is_valid, refused))
    assert {construct for construct, is_shown in shown.items() if not is_shown} == IDLE


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True

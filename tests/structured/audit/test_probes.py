"""The installed back ends do what the recorded table says, and each shape has probes of both kinds."""

import json

from gencli.structured.flat_schema import SUPPORT
from scripts.probe_backends import PAGE, page
from scripts.probe_backends import SUPPORT as SUPPORT_FILE
from tests.structured.probes.acceptor import VERSIONS, Refused
from tests.structured.probes.verdicts import PROBES, changes, is_telling, shapes

BACKENDS = sorted(VERSIONS)


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

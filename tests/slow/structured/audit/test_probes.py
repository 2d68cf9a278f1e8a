"""The installed back ends do what the recorded table says, and each shape has probes of both kinds."""

import json

from gencli.structured.flat_schema import SUPPORT
from tests.structured.audit.test_probes import BACKENDS, refusing
from tests.structured.probes.acceptor import VERSIONS
from tests.structured.probes.probe import validator_of
from tests.structured.probes.removals import IDLE, removals
from tests.structured.probes.verdicts import PROBES, changes, is_telling, table


def test_the_installed_back_end_is_as_recorded():
    for backend in BACKENDS:
        changed = changes(table(backend), SUPPORT[backend].shapes)
        assert not changed, (
            f"{backend} {VERSIONS[backend]} changed: run scripts/probe_backends.py and read the diff"
        )


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

"""Every built-in stage keeps every promise of the contract."""

import pytest

from processors.catalog import BUILTIN
from processors.reference import REFERENCE
from processors.registry import builtin_registry
from processors.testing import CHECKS, EXAMPLES, Subject

NAMES = [spec.name for spec in BUILTIN]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_stage_keeps_its_promise(name, check):
    stage = builtin_registry().load(name)
    check(Subject.of(stage, twin=REFERENCE[name]))


def test_stage_is_what_the_catalog_declares():
    for name in NAMES:
        stage, spec = builtin_registry().load(name), builtin_registry().spec(name)
        assert (stage.name, stage.phase, stage.Params) == (spec.name, spec.phase, spec.params), name


def test_every_stage_has_examples_that_switch_it_on_and_a_twin():
    assert set(NAMES) == set(REFERENCE)
    for spec in BUILTIN:
        assert not any(params.is_off() for params in EXAMPLES[spec.params])

"""Every built-in stage keeps every promise of the contract."""

import pytest

from processors.catalog import BUILTIN
from processors.reference import REFERENCE
from processors.registry import builtin_registry
from processors.testing import CHECKS, EXAMPLES, Subject, run_check

NAMES = [spec.name for spec in BUILTIN]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_all_stages_keep_a_promise(check):
    results = {
        name: run_check(check, Subject.of(builtin_registry().load(name), twin=REFERENCE[name]))
        for name in NAMES
    }
    assert {name: result.detail for name, result in results.items() if not result.passed} == {}


def test_every_stage_has_examples_that_switch_it_on_and_a_twin():
    assert set(NAMES) == set(REFERENCE)
    for spec in BUILTIN:
        assert EXAMPLES[spec.params], spec.name
        assert not any(params.is_off() for params in EXAMPLES[spec.params]), spec.name

"""Every built-in stage keeps every promise of the contract."""

import pytest

from processors.registry import builtin_registry
from processors.testing import CHECKS, Subject, run_check
from tests.processors.reference.twins import REFERENCE


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_all_stages_keep_a_promise(check):
    results = {
        name: run_check(check, Subject.of(builtin_registry().load(name), twin=REFERENCE[name]))
        for name in REFERENCE
    }
    assert {name: result.detail for name, result in results.items() if not result.passed} == {}

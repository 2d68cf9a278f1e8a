"""Every built-in stage keeps every promise of the contract."""

from processors.catalog import BUILTIN
from processors.reference import REFERENCE
from processors.testing import EXAMPLES

NAMES = [spec.name for spec in BUILTIN]


def test_every_stage_has_examples_that_switch_it_on_and_a_twin():
    assert set(NAMES) == set(REFERENCE)
    for spec in BUILTIN:
        assert EXAMPLES[spec.params], spec.name
        assert not any(params.is_off() for params in EXAMPLES[spec.params]), spec.name

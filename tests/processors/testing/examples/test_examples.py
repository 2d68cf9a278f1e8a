"""Every built-in stage has examples for the contract kit."""

from processors.catalog import BUILTIN
from processors.testing import EXAMPLES
from tests.processors.reference.twins import REFERENCE


def test_every_stage_has_examples_that_switch_it_on_and_a_twin():
    assert {spec.name for spec in BUILTIN} == set(REFERENCE)
    for spec in BUILTIN:
        assert EXAMPLES[spec.params], spec.name
        assert not any(params.is_off() for params in EXAMPLES[spec.params]), spec.name

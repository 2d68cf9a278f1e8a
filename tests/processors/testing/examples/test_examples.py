"""Every built-in stage has example parameters, and each of them switches it on."""

from processors.catalog import BUILTIN
from processors.testing.examples import EXAMPLES


def test_the_examples_of_a_stage_are_on():
    for spec in BUILTIN:
        assert EXAMPLES[spec.params], spec
        assert not any(params.is_off() for params in EXAMPLES[spec.params]), spec

"""Every built-in stage has example parameters, and each of them switches it on."""

import pytest

from processors.catalog import BUILTIN
from processors.testing.examples import EXAMPLES


@pytest.mark.parametrize("spec", BUILTIN, ids=lambda spec: spec.name)
def test_the_examples_of_a_stage_are_on(spec):
    assert EXAMPLES[spec.params]
    assert not any(params.is_off() for params in EXAMPLES[spec.params])

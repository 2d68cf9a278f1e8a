"""The profile hf beside the transformers that is installed: values, processors in their order, length."""

from tests.config.test_compat_hf import CHAINS, model, profile
from tests.slow.config.test_compat_hf import (
    assert_rows_are_those_of_transformers,
    assert_texts_are_those_of_transformers,
)


def test_its_chain_makes_the_distributions_of_transformers(profile, model):
    for name in CHAINS:
        for ties in (False, True):
            assert_rows_are_those_of_transformers(profile, model, name, ties=ties)


def test_texts_of_tiny_are_drawn_from_the_distributions_of_transformers(model):
    for name in CHAINS:
        assert_texts_are_those_of_transformers(model, name)

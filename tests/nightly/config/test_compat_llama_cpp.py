"""The profile llama-cpp beside llama.cpp's own chain of samplers, through its Python binding."""

import pytest

from tests.helpers.tiny_steps import far_steps, steps
from tests.slow.config.test_compat_llama_cpp import CHAINS, assert_rows_are_those_of_llama_cpp, llama_rows

llama = pytest.importorskip("llama_cpp")


def test_its_chain_makes_the_distributions_of_llama_cpp():
    for name in CHAINS:
        for ties in (False, True):
            assert_rows_are_those_of_llama_cpp(name, ties=ties)


def test_texts_of_tiny_are_drawn_from_the_distributions_of_llama_cpp():
    for name in CHAINS:
        given = CHAINS[name]
        found = steps("llama-cpp", **given)
        assert far_steps((own, llama_rows(logits, ids, given)) for ids, logits, own in found) <= 0.02, name

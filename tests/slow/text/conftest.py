"""The fixtures of tests/text."""

from tests.text.conftest import hf_decode, make, texts

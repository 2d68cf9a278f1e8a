"""Drafts of a model with another vocabulary, through text."""

from itertools import product

from gencli.runtime.wiring import bare_drafter
from tests.slow.speculative.test_translation import CHOICE, DRAWN, check_no_token_changes, other_ids, tiny


def test_no_token_of_tiny_changes(other_ids):
    for chain, tokens in product(("temperature=0", "temperature=0.8", DRAWN), (1, 3, 8)):
        check_no_token_changes(bare_drafter(other_ids, tiny(), CHOICE), chain, tokens)

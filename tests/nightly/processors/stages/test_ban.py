"""Bans by text, entry 38: the text never appears, and nothing else is masked."""

from itertools import product

from tests.slow.processors.stages.test_ban import ALPHABETS, check_random_tokenizer


def test_on_many_random_tokenizers_exactly_the_completing_tokens_are_masked():
    for alphabet, seed in product(ALPHABETS.values(), range(1, 8)):
        check_random_tokenizer(alphabet, seed)

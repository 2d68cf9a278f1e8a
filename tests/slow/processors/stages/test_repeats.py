"""no_repeat_ngram, dry and lz: entries 25 and 28 to 33, and the plain references on random texts."""

from tests.processors.stages.test_repeats import check_random_texts


def test_random_texts_over_few_tokens_are_processed_as_in_the_reference():
    for seed in range(4):
        check_random_texts(seed)

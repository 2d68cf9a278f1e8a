"""The bundled model, for real: its text does not depend on the company it is generated in."""

from tests.slow.test_tiny_model import check_company, tokenizer


def test_200_requests_alone_in_batches_shuffled_and_with_other_neighbours(tokenizer):
    check_company(tokenizer, 200)

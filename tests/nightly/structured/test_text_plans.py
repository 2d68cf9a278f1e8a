"""Random expressions and grammars: the back ends agree on every short text, and with the `regex` package."""

from tests.slow.structured.test_text_plans import check_expressions, check_grammars


def test_more_random_expressions_and_grammars():
    for seed in range(1, 4):
        check_expressions(seed)
        check_grammars(seed)

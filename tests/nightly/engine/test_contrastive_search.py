"""Contrastive search is the search written plainly, whatever stands beside it."""

from tests.slow.engine.test_contrastive_search import check, check_bundled, model, runner


def test_tokens_of_each_alpha_are_those_of_the_search_written_plainly(model, runner):
    for alpha, k in ((0.0, 3), (0.6, 1), (0.9, 6), (1.0, 5)):
        check(model, runner, alpha, k)


def test_the_bundled_model_writes_with_each_alpha_what_the_search_written_plainly_writes():
    for alpha, k in ((0.0, 4), (0.3, 5), (0.9, 3)):
        check_bundled(alpha, k)

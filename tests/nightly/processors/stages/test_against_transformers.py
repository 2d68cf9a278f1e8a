"""Where transformers means the same, its warpers give the same logits."""

from tests.slow.processors.stages.test_against_transformers import check


def test_stages_that_look_at_the_history_agree_on_thousands_of_rows():
    check(10_000)

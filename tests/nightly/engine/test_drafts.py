"""With drafts and without, every stage gives the same text; only the number of steps differs."""

from processors.catalog import BUILTIN
from processors.testing.examples import EXAMPLES
from tests.engine.test_drafts import fits
from tests.slow.engine.test_drafts import check


def test_text_with_drafts_is_text_without_whatever_the_values_of_a_stage():
    for spec in BUILTIN:
        for params in filter(fits, EXAMPLES[spec.params][1:]):
            check(spec.name, params)

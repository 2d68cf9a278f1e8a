"""Guided requests and requests that contrast layers: the formula, in every company."""

from gencli.core.request import LayerContrast
from tests.engine.test_guidance import model, runner
from tests.slow.engine.test_guidance import check


def test_the_text_of_other_layers_and_cutoffs_is_that_of_the_formula(model, runner):
    for dola in (LayerContrast("high", 0.3), LayerContrast((0, 3, 5), 0.0)):
        check(model, runner, dola)

"""gencli quantize, and runs with quantized weights: one text in any company."""

from tests.slow.cli.commands.test_quantize import COMPANIES, assert_the_text_is_that_alone


def test_a_text_depends_on_no_company(gencli):
    assert_the_text_is_that_alone(gencli, COMPANIES[1:])

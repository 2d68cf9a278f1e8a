"""Models on the command line: folders, GGUF files, quantized copies, GPUs, what fits."""

from tests.slow.cli.commands.test_models import COMPANIES, assert_the_text_is_that_alone


def test_a_text_depends_on_no_company(gencli):
    assert_the_text_is_that_alone(gencli, COMPANIES[1:])

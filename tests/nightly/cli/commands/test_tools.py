"""tokenize, doctor, completion, and watermarks with gencli detect."""

import pytest

from tests.cli.commands.test_tools import OFFERED, assert_names_are_offered_without_anything_heavy, marked
from tests.slow.cli.commands.test_tools import assert_no_output_and_no_file_has_the_key


def test_every_completion_offers_names_without_anything_heavy(tmp_path):
    assert_names_are_offered_without_anything_heavy(OFFERED[1:], tmp_path)


@pytest.mark.parametrize("kind", ["kgw", "synthid"])
def test_no_output_and_no_file_has_the_key_of_other_marks(gencli, marked, tmp_path, kind):
    assert_no_output_and_no_file_has_the_key(gencli, marked, tmp_path, kind)

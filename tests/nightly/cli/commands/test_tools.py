"""tokenize, doctor, completion, and watermarks with gencli detect."""

from tests.cli.commands.test_tools import OFFERED, assert_names_are_offered_without_anything_heavy


def test_every_completion_offers_names_without_anything_heavy(tmp_path):
    assert_names_are_offered_without_anything_heavy(OFFERED[1:], tmp_path)

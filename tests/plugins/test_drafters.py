"""A plugin may be a drafter: it guesses, and no guess changes a text."""

import pytest

from gencli.errors import PluginError
from gencli.plugins.registry import make_registry

DRAFTER = """
from gencli.drafters.base import Drafter


class Same(Drafter):
    name = "same"

    def propose(self, asks):
        return [[ask.tokens[-1]] * ask.most for ask in asks]
"""
RUN = ("--model", "fake", "--allow-ids", "97,98", "--seed", "1", "--max-tokens", "40", "abab")


def test_a_drafter_from_a_file_is_named_with_draft(plugin, gencli):
    path = plugin(DRAFTER)
    plain = gencli("run", *RUN)
    found = gencli("run", *RUN, "--plugin", path, "--draft", "same", "--draft-tokens", "2")
    assert (found.code, found.out) == (0, plain.out)
    assert "Drafts (same): " in found.err
    assert "tokens a forward" in found.err


def test_one_that_is_not_named_is_said_to_be_idle(plugin, gencli):
    found = gencli("run", *RUN, "--plugin", plugin(DRAFTER))
    assert "The drafter same of" in found.err
    assert "add --draft same" in found.err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "same"', "", "has the name ''"),
        ('"same"', '"ngram"', "a name that gencli has not taken"),
        ("def propose", "def suggest", "has no propose"),
        ("def propose", "def __init__(self, size): pass\n\n    def propose", "made without arguments"),
    ],
    ids=str,
)
def test_what_is_no_drafter_is_refused(plugin, old, new, said):
    with pytest.raises(PluginError, match=said):
        make_registry([str(plugin(DRAFTER.replace(old, new)))])


def test_two_of_one_name_are_refused(plugin, tmp_path):
    other = tmp_path / "other.py"
    other.write_text(DRAFTER)
    with pytest.raises(PluginError, match="Two drafters want the name 'same'"):
        make_registry([str(plugin(DRAFTER)), str(other)])

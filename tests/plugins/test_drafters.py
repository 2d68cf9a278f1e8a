"""A plugin may be a drafter: it guesses, and no guess changes a text."""

import pytest

from gencli.errors import PluginError
from gencli.plugins.plugin_registry import make_registry

DRAFTER = """
from gencli.speculative.drafter import Drafter


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

    found = gencli("run", *RUN, "--plugin", plugin(DRAFTER))
    assert "The drafter same of" in found.err
    assert "add --draft same" in found.err


def test_what_is_no_drafter_is_refused(plugin, tmp_path):
    for old, new, said in [
        ('name = "same"', "", "has the name ''"),
        ('"same"', '"ngram"', "a name that gencli does not use"),
        ("def propose", "def suggest", "has no propose"),
        ("def propose", "def __init__(self, size): pass\n\n    def propose", "a class without arguments"),
    ]:
        with pytest.raises(PluginError, match=said):
            make_registry([str(plugin(DRAFTER.replace(old, new)))])

    path = plugin(DRAFTER.replace('name = "same"', 'name = "same"\n    passes = True'))
    with pytest.raises(PluginError, match="has passes, which is now is_autoregressive"):
        make_registry([str(path)])

    other = tmp_path / "other.py"
    other.write_text(DRAFTER)
    with pytest.raises(PluginError, match="Two drafters have the name 'same'"):
        make_registry([str(plugin(DRAFTER)), str(other)])


def test_one_that_cannot_be_made_exits_with_4(plugin, gencli):
    path = plugin(DRAFTER + "    def __init__(self):\n        raise SystemExit(0)\n")
    found = gencli("run", *RUN, "--plugin", path, "--draft", "same")
    assert found.code == 4
    assert "The drafter same is wrong: __init__ raised SystemExit('0')" in found.err


def test_drafts_that_are_drawn_have_a_distribution(plugin, gencli):
    for logits in ["torch.zeros(3)", "torch.full((258,), torch.nan)", "torch.zeros(258).double()", "None"]:
        body = f"return [Drawn((97,), ({logits},), (0.5,)) for ask in asks]"
        code = "import torch\nfrom gencli.speculative.drafter import Drawn\n" + DRAFTER.replace(
            "return [[ask.tokens[-1]] * ask.most for ask in asks]", body
        )
        found = gencli("run", *RUN, "--plugin", plugin(code), "--draft", "same", "--verify", "rejection")
        assert found.code == 0, logits
        assert "propose returned Drawn with wrong logits" in found.err, logits

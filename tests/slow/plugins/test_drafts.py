"""A drafter that is wrong is said once and changes no text."""

from tests.plugins.test_drafts import DRAFTER, FLAGS

WRONG = {
    "raise SystemExit(0)": "propose raised SystemExit('0')",
    "raise ValueError('lost')": "propose raised ValueError('lost')",
    "return None": "propose returned None",
    "return 'x'": "propose returned 'x'",
    "return []": "propose returned []",
    "return [['a'] for ask in asks]": "propose returned ['a']",
    "return [[10**9] for ask in asks]": "propose returned [1000000000]",
    "return [[-1] for ask in asks]": "propose returned [-1]",
    "return [7 for ask in asks]": "propose returned 7",
}


def test_one_that_is_wrong_is_said_once_and_changes_no_text(plugin, gencli):
    for body in WRONG:
        path = plugin(DRAFTER.replace("return [[ask.tokens[-1]] * ask.most for ask in asks]", body))
        found = gencli("run", *FLAGS, "--plugin", path, "--draft", "same", "--draft-tokens", "2")
        assert (found.code, found.out) == (0, gencli("run", *FLAGS).out), body
        assert found.err.count("The drafter same is wrong: ") == 1, body
        assert WRONG[body] in found.err, body


def test_one_whose_hook_raises_is_said_once(plugin, gencli):
    for hook in ["bind", "handles", "is_autoregressive_for", "admit", "measure", "observe", "release"]:
        path = plugin(DRAFTER + f"    def {hook}(self, *_, **__):\n        raise GeneratorExit('lost')\n")
        found = gencli("run", *FLAGS, "--plugin", path, "--draft", "same", "--draft-tokens", "2")
        assert (found.code, found.out) == (0, gencli("run", *FLAGS).out), hook
        if hook != "is_autoregressive_for":  # which only a request with a grammar asks for
            assert f"The drafter same is wrong: {hook} raised GeneratorExit('lost')" in found.err, hook

"""What a wait shows: a bar on a terminal, at most a line elsewhere, nothing with --quiet."""

from gencli.cli.result_writers import LiveThinking
from gencli.cli.stderr import Stderr
from gencli.core.events import Token


def test_off_a_terminal_only_large_weights_are_spoken_of_in_one_line(capsys):
    for total, is_quiet, said in [
        (2 * 10**9, False, "Loading big, 2.0 GB ...\n"),
        (10**6, False, ""),
        (2 * 10**9, True, ""),
    ]:
        with Stderr(is_quiet=is_quiet).loading("big") as on_bytes:
            for done in (0, total // 2, total):
                on_bytes(done, total)
        assert capsys.readouterr() == ("", said), total


def test_live_thinking_ends_its_line_where_the_marker_ends_it(capsys):
    shown = LiveThinking("</t>")
    for text in ("\n", "so ", "it </", "t>", "{}"):
        shown.add(Token("1", 0, text, ()))
    assert capsys.readouterr() == ("", "[thinking] so it </t>\n")

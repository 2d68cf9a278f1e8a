"""Manual pages: one for each command, from the declarations of the help, without a fault of roff."""

from tests.cli.commands.test_man import found, groff, plain


@groff
def test_no_page_has_a_fault_and_each_shows_what_was_declared(found):
    for name, text in found.items():
        shown, faults = plain(text)
        assert faults == "", name
        assert text.isascii()
        assert f"{name} - " in shown


def test_a_page_is_printed_where_there_is_no_terminal(gencli, found):
    assert gencli("man", "run").out == found["gencli-run"]
    assert gencli("man", "config", "show").out == found["gencli-config-show"]
    assert gencli("man").out == found["gencli"]

"""Manual pages: one for each command, from the declarations of the help, without a fault of roff."""

from tests.cli.commands.test_man import found, groff, plain
from tests.cli.terminal.test_terminal import commands


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


def test_every_command_and_every_group_has_a_page(found):
    names = {f"gencli-{words.replace(' ', '-')}" for words in commands()}
    groups = {name.rpartition("-")[0] for name in names}
    assert set(found) == names | groups


def test_what_cannot_be_is_refused(gencli, tmp_path, monkeypatch):
    for arguments, said in [
        (("rnu",), "Did you mean 'run'"),
        (("run", "--output", "x"), "all pages"),
        (("--output", "f/x"), "f/x"),
    ]:
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            (tmp_path / "f").write_text("a file")
            result = gencli("man", *arguments)
            assert (result.code, result.out) == (2, ""), arguments
            assert said in result.err, arguments

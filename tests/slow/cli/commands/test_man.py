"""Manual pages: one for each command, from the declarations of the help, without a fault of roff."""

import re
import shutil
import subprocess

import pytest

from gencli.cli.commands.man import pages
from gencli.config.run_options import OPTIONS
from tests.cli.test_render import commands


@pytest.fixture(scope="module")
def found():
    return pages()


def plain(text, width=200):
    """A page as groff shows it, without bold and underlined letters."""
    command = ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", f"-rLL={width}n"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


groff = pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")


@groff
def test_the_page_of_run_has_every_option_as_it_is_typed(found):
    shown, _ = plain(found["gencli-run"])
    for entry in OPTIONS:
        for name in entry.names:
            assert re.search(rf"^ +.*{re.escape(name)}\b", shown, re.MULTILINE), name
    assert r"C escapes are read: \n is a newline, \\n is \n itself." in shown
    assert 'cat notes.txt | gencli run "Summarise this:"' in shown


def test_all_pages_are_written_into_a_folder(gencli, found, tmp_path):
    result = gencli("man", "--output", tmp_path / "man1")
    assert (result.code, result.out) == (0, "")
    files = {path.name: path.read_text() for path in (tmp_path / "man1").iterdir()}
    assert files == {f"{name}.1": text for name, text in found.items()}


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
            gencli("man", *arguments).refused(said)

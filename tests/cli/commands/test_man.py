"""Manual pages: one for each command, from the declarations of the help, without a fault of roff."""

import re
import shutil
import subprocess

import pytest

from gencli.cli.commands.man import pages
from gencli.config.options.run import OPTIONS


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

"""A folder, a pipe or a dead link in the place of one of gencli's files is said, not passed over."""

import os

import pytest

from tests.cli.conftest import FAKE

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")

KINDS = {
    "it is a folder": os.mkdir,
    "it is a pipe": os.mkfifo,
    "No such file": lambda path: os.symlink("/nowhere/at/all", path),
}
PLACES = [
    ("home/gencli/defaults.yaml", ()),
    ("home/gencli/presets/mine.yaml", ("--preset", "mine")),
    ("configs/balanced.yaml", ("--preset", "balanced")),
    ("mine.yaml", ("--preset", "./mine.yaml")),
    ("home/gencli/aliases.json", ("--model", "other")),
]


@pytest.mark.parametrize("reason", KINDS)
def test_what_is_no_file_is_an_error_of_what_reads_it(here, gencli, tmp_path, reason):
    for name, flags in PLACES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        KINDS[reason](path)
        done = gencli("run", *FAKE, "--max-tokens", "2", "hi", *flags)
        assert done.code == 3, name
        assert f"cannot be read: {reason}" in done.err, name
        assert gencli("config", "list").code == 0, name
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_a_template_by_name_that_is_no_file_is_said(here, gencli, tmp_path, make):
    (tmp_path / "templates").mkdir()
    make(tmp_path / "templates" / "mine.jinja")
    done = gencli("run", *FAKE, "--max-tokens", "2", "hi", "--template", "mine")
    assert done.code == 2
    assert "mine.jinja exists, but is not a file" in done.err


def test_a_plugin_that_is_no_file_is_said(here, gencli, tmp_path):
    os.mkdir(tmp_path / "folder.py")
    os.mkfifo(tmp_path / "pipe.py")
    for name, reason in [
        ("folder.py", "it is a folder"),
        ("pipe.py", "it is a pipe"),
        ("no.py", "no such file"),
    ]:
        done = gencli("run", *FAKE, "--max-tokens", "2", "hi", "--plugin", name)
        assert done.code == 4, name
        assert reason in done.err, name

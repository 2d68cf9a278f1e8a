"""Files that commands are given: pipes, devices, links, deleted folders; nothing of a wrong file is shown."""

import os
import subprocess
import sys
import threading

import pytest

from gencli.cli.app import COMMANDS

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
BATCH = ("batch", "-m", "fake", "--max-tokens", "3", "--seed", "1", "--quiet")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a named pipe, a secret, and the rows of a batch."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.yaml").write_text("root:x:0:0:root\nsecret:x:1:1:secret\n")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "hi"}\n')
    (tmp_path / "victim").write_text("mine")
    os.mkfifo(tmp_path / "pipe.json")
    os.mkfifo(tmp_path / "pipe.yaml")
    return tmp_path


@pytest.mark.parametrize("place", ["/dev/zero", "pipe.json"])
@pytest.mark.parametrize("key", ["grammar", "lark", "tools", "structural_tag", "json_schema"])
def test_a_preset_cannot_name_a_device_or_a_pipe(run, here, key, place):
    if key == "json_schema" and place == "/dev/zero":
        place = "link.json"
        (here / place).symlink_to("/dev/zero")
    (here / "preset.yaml").write_text(f"{key}: {place}\n")
    result = run("--preset", "./preset.yaml", "hi")
    assert result.code == 3
    assert "but has to be a regular file" in result.err


def test_a_row_cannot_name_a_file_at_all(gencli, here):
    (here / "rows.jsonl").write_text('{"prompt": "hi", "grammar": "pipe.json"}\n')
    result = gencli(*BATCH, "rows.jsonl", "-o", "-")
    assert result.code == 7


@pytest.mark.parametrize("flag", ["--file", "--grammar"])
def test_a_flag_can_name_a_pipe(run, here, flag):
    writer = threading.Thread(target=(here / "pipe.json").write_text, args=['root ::= "b"'])
    writer.start()
    result = run(flag, "pipe.json", *(["hi"] if flag == "--grammar" else []), "--max-tokens", "3")
    writer.join()
    assert result.code == 0


@pytest.mark.parametrize("arguments", [("--file", "/dev/zero"), ("--tools", "/dev/zero", "hi")])
def test_a_flag_cannot_name_a_device(run, here, arguments):
    assert "it is a device, but has to be a file or a pipe" in run(*arguments).err


@pytest.mark.parametrize("name", ["pipe.yaml", "/dev/zero"])
def test_neither_a_preset_nor_what_it_extends_can_be_a_pipe_or_a_device(gencli, here, name):
    (here / "preset.yaml").write_text(f"extends: ./{name}\n")
    for preset in ("./preset.yaml", f"./{name}"):
        assert gencli("config", "show", "--preset", preset).code == 3


def test_a_list_of_presets_names_a_pipe_and_does_not_wait_for_it(gencli, here):
    (here / "configs").mkdir()
    (here / "pipe.yaml").rename(here / "configs" / "pipe.yaml")
    assert "it is a pipe" in gencli("config", "list").out


@pytest.mark.parametrize("name", ["secret.yaml", "preset.yaml"])
def test_the_contents_of_a_file_that_is_no_preset_are_not_shown(gencli, here, name):
    (here / "preset.yaml").write_text("extends: ./secret.yaml\n")
    result = gencli("config", "show", "--preset", f"./{name}")
    assert result.code == 3
    assert "root" not in result.err


@pytest.mark.parametrize("suffix", [".part", ".journal", ".lock"])
def test_a_batch_does_not_write_through_a_link_with_a_name_of_its_own(gencli, here, suffix):
    hidden = "" if suffix == ".journal" else "."
    (here / f"{hidden}out.jsonl{suffix}").symlink_to("victim")
    result = gencli(*BATCH, "rows.jsonl", "-o", "out.jsonl", "--overwrite")
    assert (here / "victim").read_text() == "mine"
    assert not (here / "out.jsonl").is_symlink()
    assert result.code in (0, 2)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "completion"])
def test_each_command_says_that_its_folder_was_deleted(name, here):
    code = f"""
import os, sys
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
from gencli.cli.app import main
sys.exit(main([{name!r}]))
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == 2
    assert found.stderr.startswith("Error: The working directory")


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        (("--chain", "top_p,temperature", "--presence-penalty", "1"), ("--chain", "--presence-penalty")),
        (("--chain", "top_p,temperature", "--repetition-penalty", "2"), ("--chain", "--repetition-penalty")),
        (("--chain", "top_p,temperature", "--logit-bias", "a=3"), ("--chain", "--logit-bias")),
        (
            ("--chain", "top_k,ban", "--top-k", "3", "--ban", "a"),
            ("--chain", "--top-k", "--ban"),
        ),
    ],
)
def test_an_order_that_does_not_fit_is_refused_with_both_flags(run, arguments, flags):
    result = run(*arguments, "hi")
    assert result.code == 2
    assert all(flag in result.err for flag in flags)


def test_a_byte_order_mark_within_a_file_is_named(gencli, here):
    row = b'\xef\xbb\xbf{"prompt": "hi"}\n'
    (here / "rows.jsonl").write_bytes(row + row)
    result = gencli(*BATCH, "rows.jsonl", "-o", "-")
    assert result.code == 7
    assert "byte order mark" in result.out

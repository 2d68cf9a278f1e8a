"""Files that commands are given: pipes, devices, links, deleted folders; nothing of a wrong file is shown."""

import os
import subprocess
import sys
import threading

import pytest

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


def test_a_preset_cannot_name_a_device_or_a_pipe(run, here):
    for key in ["grammar", "lark", "tools", "structural_tag", "json_schema"]:
        for place, why in [
            ("/dev/zero", "but has to be a regular file"),
            ("pipe.json", "but has to be a regular file"),
            ("some/where", "No such file"),
            ("./none", "No such file"),
        ]:
            (here / "preset.yaml").write_text(f"{key}: {place}\n")
            run("--preset", "./preset.yaml", "hi").refused(why, code=3)


def test_a_row_cannot_name_a_file_and_a_byte_order_mark_is_named(gencli, here):
    (here / "rows.jsonl").write_text('{"prompt": "hi", "grammar": "pipe.json"}\n')
    assert gencli(*BATCH, "rows.jsonl", "-o", "-").code == 7

    row = b'\xef\xbb\xbf{"prompt": "hi"}\n'
    (here / "rows.jsonl").write_bytes(row + row)
    result = gencli(*BATCH, "rows.jsonl", "-o", "-")
    assert result.code == 7
    assert "byte order mark" in result.out


def test_a_flag_can_name_a_pipe_but_no_device(run, here):
    for flag in ["--file", "--grammar"]:
        writer = threading.Thread(target=(here / "pipe.json").write_text, args=['root ::= "b"'])
        writer.start()
        result = run(flag, "pipe.json", *(["hi"] if flag == "--grammar" else []), "--max-tokens", "3")
        writer.join()
        assert result.code == 0, flag

    for arguments in [("--file", "/dev/zero"), ("--tools", "/dev/zero", "hi")]:
        assert "it is a device, but has to be a file or a pipe" in run(*arguments).err, arguments


def test_presets_can_be_neither_pipes_nor_devices_and_no_other_file_is_shown(gencli, here):
    for name in ["pipe.yaml", "/dev/zero"]:
        (here / "preset.yaml").write_text(f"extends: ./{name}\n")
        for preset in ("./preset.yaml", f"./{name}"):
            assert gencli("config", "show", "--preset", preset).code == 3, name

    for name in ["secret.yaml", "preset.yaml"]:
        (here / "preset.yaml").write_text("extends: ./secret.yaml\n")
        result = gencli("config", "show", "--preset", f"./{name}")
        assert result.code == 3, name
        assert "root" not in result.err, name

    (here / "configs").mkdir()
    (here / "pipe.yaml").rename(here / "configs" / "pipe.yaml")
    assert "it is a pipe" in gencli("config", "list").out


def test_a_batch_does_not_write_through_a_link_with_a_name_of_its_own(gencli, here):
    for suffix in [".part", ".journal", ".lock"]:
        for old in here.glob("*out.jsonl*"):
            old.unlink()
        hidden = "" if suffix == ".journal" else "."
        (here / f"{hidden}out.jsonl{suffix}").symlink_to("victim")
        result = gencli(*BATCH, "rows.jsonl", "-o", "out.jsonl", "--overwrite")
        assert (here / "victim").read_text() == "mine", suffix
        assert not (here / "out.jsonl").is_symlink(), suffix
        assert result.code in (0, 2), suffix


def assert_a_deleted_folder_is_said(name):
    code = f"""
import os, sys
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
from gencli.cli.app import main
sys.exit(main([{name!r}]))
"""
    words = [sys.executable, "-c", code]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 2, name
    assert found.stderr.startswith("Error: The working directory"), name


def test_a_run_says_that_its_folder_was_deleted(here):
    assert_a_deleted_folder_is_said("run")


def test_an_order_that_does_not_fit_is_refused_with_both_flags(run):
    for arguments, flags in [
        (("--chain", "top_p,temperature", "--presence-penalty", "1"), ("--chain", "--presence-penalty")),
        (("--chain", "top_p,temperature", "--repetition-penalty", "2"), ("--chain", "--repetition-penalty")),
        (("--chain", "top_p,temperature", "--logit-bias", "a=3"), ("--chain", "--logit-bias")),
        (("--chain", "top_k,ban", "--top-k", "3", "--ban", "a"), ("--chain", "--top-k", "--ban")),
    ]:
        run(*arguments, "hi").refused(*flags)

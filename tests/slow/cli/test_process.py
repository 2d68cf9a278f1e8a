"""What only a real process shows: pipes, signals, encodings, imports."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import command
from tests.cli.test_process import LONG, MANY, SHORT, ended
from tests.helpers.terminals import on_a_terminal


def test_ctrl_c_writes_the_text_so_far_and_ends_with_130(start):
    process = start(*MANY)
    first = b"".join(process.stdout.read(1) for _ in range(40))
    process.send_signal(signal.SIGINT)
    code, rest, err = ended(process)
    assert code == 130
    assert b"interrupted" in err
    text = (first + rest).split(b"==>")[1].split(b"<==\n")[1].rstrip(b"\n")
    assert text
    assert ended(start(*LONG))[1].startswith(text)


def test_ctrl_c_ends_a_million_samples_as_it_ends_a_few(start):
    # One text is written at a time, so the first bytes say that the samples are submitted.
    for n in (50, 1_000_000):
        process = start("-n", str(n), *LONG, "--max-batch", "1")
        process.stdout.read(40)
        process.send_signal(signal.SIGINT)
        code, rest, err = ended(process)
        assert (code, rest.count(b"==>")) == (130, 0), n
        assert f", {n} interrupted, seed 1\n".encode() in err, n


def assert_an_encoding_does_not_fail(start, encoding, form, **env):
    # The bytes of a zero-width joiner: no single-byte code page has it.
    words = ("--allow-ids", "226,128,141", "--seed", "1", "--max-tokens", "12", "h\u00e9\U0001f600")
    env["PYTHONIOENCODING"] = encoding
    code, out, err = ended(start(*words, "--format", form, "--stats", own=True, env=env))
    assert code == 0, (encoding, err)
    assert form == "text" or json.loads(out.decode(encoding))["prompt"] == words[-1], encoding
    assert b"\x1b" not in out + err, "off a terminal there are no escape sequences"


def test_ascii_does_not_fail_and_nothing_forces_colours(start):
    assert_an_encoding_does_not_fail(start, "ascii", "json", FORCE_COLOR="1", GITHUB_ACTIONS="1")


def test_rows_on_a_terminal_are_labelled_and_plain_if_so_wished():
    for env, is_drawn in [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]:
        words = command("--allow-ids", "97,98", "--max-tokens", "9", "hi", "yo")
        shown = on_a_terminal(words, {"TERM": "xterm", "NO_COLOR": "", **env})
        assert [label for label in (b"==> 1: hi <==", b"==> 2: yo <==") if label not in shown] == [], env
        assert (b"\x1b" in shown) is is_drawn, env


def test_a_pipe_is_read(start):
    process = start("--seed", "1", "--max-tokens", "20", stdin=subprocess.PIPE)
    out, _ = process.communicate(b"hi\n", timeout=60)
    assert out == ended(start(*SHORT))[1]


def test_a_reader_that_leaves_ends_the_run_quietly(start):
    process = start(*MANY, "--quiet")
    process.stdout.read(1)
    process.stdout.close()
    process.stdout = None
    assert ended(process) == (0, None, b"")


def test_a_second_ctrl_c_ends_at_once(start):
    process = start(*MANY)
    process.stdout.read(10)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130
    assert b"Traceback" not in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_without_a_traceback(start):
    with Path("/dev/full").open("w") as full:
        code, _, err = ended(start(*SHORT, stdout=full))
    assert code == 6
    assert err == b"Error: Cannot write to stdout: No space left on device.\n"


HEAVY = ("transformers", "torch._dynamo", "sympy", "huggingface_hub", "accelerate")

NATIVE = [
    ["run", "--max-tokens", "2", "--log", "Hi"],
    ["run", "--chat", "--max-tokens", "2", "--format", "json", "Hi"],
    ["run", "--model", "tiny", "--draft", "tiny-draft", "--max-tokens", "4", "--top-p", "0.9", "Hi"],
    ["batch", "rows.jsonl", "-o", "out.jsonl", "--max-tokens", "2"],
    ["batch", "rows.jsonl", "--dry-run"],
    ["tokenize", "Hi"],
]

EACH_IN_A_FORK = f"""
import os, sys, torch
import gencli.batch.run_batch, gencli.cli.commands.generate  # once, for all commands
from gencli.cli.app import main
for arguments in {NATIVE!r}:
    if os.fork() == 0:
        code = main(arguments)
        print(code, *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr, flush=True)
        os._exit(0)
    os.wait()
    print("==", file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What each command of NATIVE writes to stderr in a process that has imported torch and no more."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "rows.jsonl").write_text(json.dumps({"prompt": "Hi"}) + "\n")
    done = subprocess.run(
        [sys.executable, "-c", EACH_IN_A_FORK],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"XDG_DATA_HOME": str(folder)},
    )
    return done.stderr.split("==\n")[:-1]


def test_the_native_path_does_without_transformers(said):
    for number in range(len(NATIVE)):
        assert said[number].splitlines()[-1] == "0", said[number]

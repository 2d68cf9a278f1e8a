"""One output has one writer; what a dead one has left is taken over."""

import os
import subprocess
import sys

import pytest

from gencli.errors import UsageError
from gencli.files import lock_path, locked

HOLDER = """
import sys
from pathlib import Path
from gencli.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    command = [sys.executable, "-c", HOLDER, tmp_path / "out"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_a_second_writer_is_refused_and_told_who_has_it(tmp_path, holder):
    with (
        pytest.raises(UsageError, match=f"being written by process {holder.pid} on "),
        locked(tmp_path / "out"),
    ):
        pass
    with locked(tmp_path / "another"):
        pass


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert lock_path(tmp_path / "out").exists()
    with locked(tmp_path / "out"):
        pass


def test_nothing_stays_of_a_lock_that_was_given_back(tmp_path):
    for _ in range(2):
        with locked(tmp_path / "out"):
            assert list(tmp_path.iterdir()) == [tmp_path / "out.lock"]
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing_is_said(tmp_path):
    with pytest.raises(UsageError, match="cannot be written"), locked(tmp_path / "no" / "out"):
        pass


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_lock_that_is_no_file_is_refused(tmp_path):
    os.mkfifo(lock_path(tmp_path / "out"))
    with pytest.raises(UsageError, match="it is a pipe"), locked(tmp_path / "out"):
        pass

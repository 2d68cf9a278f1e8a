"""Files with bounds, replaced whole, and locks beside them; caches of recent values."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gencli.errors import UsageError
from gencli.files import beside, lock_path, locked, new_file, open_regular, read_file, replaced
from gencli.helpers import Recent, counted, ended

posix = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


@posix
def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, kind in [("pipe", "a pipe"), ("/dev/zero", "a device"), (".", "a folder")]:
        with pytest.raises(OSError, match=f"it is {kind}, but has to be a regular file"):
            read_file(tmp_path / name, 10)
    with pytest.raises(OSError, match="a file or a pipe"):
        open_regular("/dev/zero", pipes=True)


@posix
def test_a_pipe_that_may_be_is_read_within_its_bound():
    for size in (10, 11):
        reader, writer = os.pipe()
        os.write(writer, b"x" * size)
        os.close(writer)
        if size == 10:
            assert read_file(f"/dev/fd/{reader}", 10, pipes=True) == b"x" * 10
        else:
            with pytest.raises(OSError, match="more than 10 bytes"):
                read_file(f"/dev/fd/{reader}", 10, pipes=True)
        os.close(reader)


def test_a_file_is_read_within_its_bound(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("file")
    assert read_file(tmp_path / "link", 10) == b"0123456789"
    with pytest.raises(OSError, match="more than 9 bytes"):
        read_file(tmp_path / "file", 9)


def test_a_new_file_takes_the_place_of_a_link_and_leaves_alone_what_that_leads_to(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "new").symlink_to("victim")
    os.close(new_file(tmp_path / "new"))
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "new").is_symlink()


def test_a_replaced_file_is_not_written_through_a_link_beside_it(tmp_path):
    (tmp_path / "victim").write_text("mine")
    beside(tmp_path / "out").symlink_to("victim")
    with replaced(tmp_path / "out") as file:
        file.write(b"text")
    assert (tmp_path / "out").read_text() == "text"
    assert not (tmp_path / "out").is_symlink()
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_link_that_was_named_stays_one(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with replaced(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "link").is_symlink()


def test_after_an_error_the_old_file_is_there(tmp_path):
    (tmp_path / "file").write_text("old")
    with pytest.raises(TypeError), replaced(tmp_path / "file") as file:
        file.write("not bytes")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


@posix
def test_a_pipe_is_not_written_where_a_file_is_meant(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a pipe"), replaced(tmp_path / "pipe", pipes=False):
        pass


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


def test_a_value_is_made_once_and_the_least_recently_used_one_is_dropped() -> None:
    made: list[str] = []

    def value(key: str) -> str:
        return cache.get(key, lambda: made.append(key) or key.upper())  # type: ignore[func-returns-value]

    cache: Recent[str, str] = Recent(2)
    assert [value(key) for key in "abacab"] == list("ABACAB")
    assert made == ["a", "b", "c", "b"]


def test_a_value_that_cannot_be_made_is_tried_again() -> None:
    cache: Recent[str, int] = Recent(2)
    with pytest.raises(ZeroDivisionError):
        cache.get("a", lambda: 1 // 0)
    assert cache.get("a", lambda: 1) == 1


def test_threads_get_one_value() -> None:
    cache: Recent[int, object] = Recent(8)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cache.get(0, object), range(100)))
    assert len({id(each) for each in found}) == 1


def test_numbers_agree_with_their_nouns():
    cases = [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1500, "1,500 rows")]
    assert [counted(count, "row") for count, _ in cases] == [said for _, said in cases]
    assert counted(1, "child", "children") == "1 child"
    assert counted(2, "text was", "texts were") == "2 texts were"


def test_a_sentence_has_one_end_mark():
    for text in ("It failed.", "Did you mean 'a'?", "No!"):
        assert ended(text) == text
    assert ended("it failed") == "it failed."

"""Lines of traces: written, read, checked and followed."""

import os
import threading

import pytest

from gencli.errors import GenerationError, UsageError
from gencli.explain.trace_file import follow


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text("one\ntw")
    return file


def lines_of(file):
    return follow(str(file), pause=1e-4)


def test_lines_come_when_they_are_complete(file):
    lines = lines_of(file)
    assert next(lines) == "one"
    with file.open("a") as more:
        more.write("o\n\u00e9\nfour")
    assert [next(lines), next(lines)] == ["two", "\u00e9"]


def test_a_pipe_ends_with_its_writer(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("one\ntwo\n",))
    writer.start()
    assert [*lines_of(pipe)] == ["one", "two"]
    writer.join()


def replace(file):
    (file.parent / "new").write_text("one\n")
    (file.parent / "new").rename(file)


def test_a_file_that_is_not_what_it_was_is_said(file):
    for change, said in [
        (lambda file: file.write_text(""), "was cut"),
        (replace, "was replaced"),
        (lambda file: file.unlink(), "was removed"),
    ]:
        file.write_text("one\ntw")
        lines = lines_of(file)
        assert next(lines) == "one", said
        change(file)
        with pytest.raises(GenerationError, match=said):
            next(lines)


def test_a_line_without_end_and_no_readable_text_are_refused(file, tmp_path, monkeypatch):
    file.write_bytes(b"\xff\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        next(lines_of(file))
    with pytest.raises(UsageError, match="cannot be read"):
        next(lines_of(tmp_path / "none"))

    monkeypatch.setattr("gencli.explain.trace_file.MAX_LINE", 10)
    file.write_text("x" * 11)
    with pytest.raises(GenerationError, match="more than 10 bytes"):
        next(lines_of(file))


def test_a_pause_that_would_keep_a_core_busy_is_refused(file):
    for pause in (0, -1, float("nan")):
        with pytest.raises(UsageError, match="pause is"):
            next(follow(str(file), pause=pause))

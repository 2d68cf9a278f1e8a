"""Files by name: only regular ones, within bounds; no link is followed where gencli makes a name."""

import os

import pytest

from gencli.files import beside, new_file, open_regular, read_file, replaced

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

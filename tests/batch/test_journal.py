"""The journal keeps every row that was appended, wherever its writer was ended."""

import os
import resource
from decimal import Decimal
from types import SimpleNamespace

import pytest

from gencli.batch.batch_records import Outcome, Record, Row
from gencli.batch.journal import Journal, read_header
from gencli.batch.run_batch import StreamStore
from gencli.errors import GenerationError, UsageError

HEADER = {"fingerprint": {"seed": 1}}


def outcome(index, text="x", *, failed=False):
    return Outcome(index, f"id {index}", {"text": text, "odd": "\ud83d €"}, failed)


def journal(path, *outcomes):
    made = Journal(path, HEADER)
    for one in outcomes:
        made.append(one)
    return made


def pending(made, count, **options):
    rows = (Row(Record(index, ""), str(index)) for index in range(count))
    return [row.record.index for row in made.pending(rows, **options)]


def test_rows_come_back_in_either_order(tmp_path):
    rows = [outcome(3), outcome(0, failed=True), outcome(2**40)]
    made = journal(tmp_path / "j", *rows)
    assert list(made.outcomes(by_row=False)) == rows
    assert [one.index for one in made.outcomes()] == [0, 3, 2**40]
    assert made.counts() == (3, 1)


def test_a_stream_without_a_journal_has_the_order_of_the_input():
    written = []
    store = StreamStore(SimpleNamespace(write=written.append), by_row=True, has_timings=True)
    assert pending(store, 4) == [0, 1, 2, 3]
    for one in map(outcome, (2, 0, 1)):
        store.add(one)
        assert (one.index == 2) == (written == [])
    assert [one.index for one in written] == [0, 1, 2]


def test_of_a_row_the_last_entry_counts(tmp_path):
    made = journal(tmp_path / "j", outcome(1, failed=True), outcome(0), outcome(1, "better"))
    assert [(one.index, one.result["text"]) for one in made.outcomes()] == [(0, "x"), (1, "better")]
    assert made.counts() == (2, 0)


def test_pending_rows_are_those_that_lack_an_entry(tmp_path):
    made = journal(tmp_path / "j", outcome(4), outcome(1, failed=True), outcome(2))
    assert pending(made, 6) == [0, 3, 5]
    assert pending(made, 6, with_failed=True) == [0, 1, 3, 5]


def test_a_header_that_is_torn_is_none(tmp_path):
    path = tmp_path / "j"
    assert read_header(path) is None
    path.write_bytes(b'{"gencli_jour')
    assert read_header(path) is None


def test_another_file_is_not_taken_for_a_journal(tmp_path):
    for line in [b"[]\n", b"hello\n", b'{"gencli_journal": 99}\n', b"\xff\n"]:
        (tmp_path / "j").write_bytes(line)
        with pytest.raises(UsageError, match="is not a journal|is a journal of version 99"):
            Journal(tmp_path / "j", HEADER)
        assert (tmp_path / "j").read_bytes() == line, line


def test_a_journal_without_checksums_is_refused_with_the_way_out(tmp_path):
    """As a gencli wrote it whose journals had version 1."""
    old = b'{"gencli_journal": 1, "fingerprint": {}}\n{"row": 0, "failed": false, "id": "0", "result": {}}\n'
    (tmp_path / "j").write_bytes(old)
    with pytest.raises(UsageError, match="version 1, and this gencli has version 2") as raised:
        Journal(tmp_path / "j", HEADER)
    assert "Finish it with the version that started it" in raised.value.hint
    assert (tmp_path / "j").read_bytes() == old


def test_the_line_that_was_changed_is_named(tmp_path):
    path = tmp_path / "j"
    journal(path, outcome(0, "some text"), outcome(1)).close()
    whole = path.read_bytes()
    for line, text in [(1, b'"seed": 1'), (2, b"some text"), (3, b'"id 1"')]:
        assert whole.count(text) == 1, line
        path.write_bytes(whole.replace(text, text[:-2] + b"7" + text[-1:]))
        with pytest.raises(UsageError, match=f"damaged in line {line}: its checksum is wrong"):
            Journal(path, HEADER)
    lines = whole.splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0" * 20 + b"\n" + lines[2])
    with pytest.raises(UsageError, match="damaged in line 2"):
        Journal(path, HEADER)


def test_a_row_that_changes_after_the_journal_was_opened_is_not_written(tmp_path):
    path = tmp_path / "j"
    made = journal(path, outcome(0), outcome(1, "some text"))
    path.write_bytes(path.read_bytes().replace(b"some text", b"some test"))
    with pytest.raises(UsageError, match="damaged at byte"):
        list(made.outcomes())


def test_a_full_disk_is_an_error_that_leaves_whole_lines(tmp_path):
    for room in [0, 1, 40]:
        path = tmp_path / f"j{room}"
        made = journal(path, outcome(0))
        size = path.stat().st_size
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, before[1]))
        try:
            with pytest.raises(GenerationError, match="cannot be written"):
                made.append(outcome(1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert path.stat().st_size == size, room
        made.append(outcome(1))
        assert made.counts() == (2, 0), room


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_is_full_from_the_beginning(tmp_path):
    (tmp_path / "j").symlink_to("/dev/full")
    with pytest.raises((GenerationError, UsageError)):
        Journal(tmp_path / "j", HEADER)


def test_a_number_of_a_document_that_no_float_holds_is_rounded(tmp_path):
    document = {"x": Decimal("0.12345678901234567891"), "y": Decimal("1e400")}
    made = Journal(tmp_path / "j", HEADER)
    made.append(Outcome(0, "a", {"parsed": document}))
    assert next(made.outcomes()).result == {"parsed": {"x": 0.12345678901234568, "y": "1E+400"}}

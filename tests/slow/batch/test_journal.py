"""The journal keeps every row that was appended, wherever its writer was ended."""

import pytest

from gencli.batch.journal import Journal
from gencli.errors import UsageError
from tests.batch.test_journal import HEADER, journal, outcome


def test_a_journal_that_is_cut_anywhere_has_all_rows_before_the_cut(tmp_path):
    path = tmp_path / "j"
    journal(path, outcome(0), outcome(1), outcome(2)).close()
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == 10]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        made = Journal(path, HEADER)
        left = sum(end <= cut for end in ends[1:])
        assert [one.index for one in made.outcomes()] == list(range(left))
        for index in range(left, 3):
            made.append(outcome(index))
        made.close()
        assert path.read_bytes() == whole


def test_no_flipped_bit_is_taken_for_what_was_written(tmp_path):
    path = tmp_path / "j"
    journal(path, outcome(0, "some text"), outcome(1)).close()
    whole = path.read_bytes()
    ends = [place for place, byte in enumerate(whole) if byte == 10]
    for place in range(len(whole)):
        if place == ends[-1]:  # a last line without its end is a torn one
            continue
        for bit in (0, 3, 6):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            with pytest.raises(UsageError):
                Journal(path, HEADER)

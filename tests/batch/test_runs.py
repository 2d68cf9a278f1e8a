"""Real processes: killed and resumed, ended by signals, with faulty lines of every kind, on a full disk."""

import os

import pytest


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_takes_no_file_is_refused(bench):
    bench.write([{"prompt": "a"}])
    bench.folder.chmod(0o500)
    done = bench.run()
    bench.folder.chmod(0o700)
    assert (done.code, "cannot be written to" in done.err) == (2, True)


def test_a_journal_that_is_a_folder_is_refused(bench):
    bench.journal.mkdir()
    for flag in ("--overwrite", "--resume"):
        assert "out.jsonl.journal cannot be" in bench.refused(flag, rows=[{"prompt": "a"}]), flag

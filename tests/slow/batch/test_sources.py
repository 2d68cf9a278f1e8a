"""Where input comes from: files, folders, patterns, URLs, stdin; and what is said when it fails."""

import gzip
from itertools import product

from gencli.batch.records import Failure
from gencli.batch.sources import open_input
from tests.batch.test_sources import prompts, zst


def test_a_packed_file_that_is_cut_off_ends_in_a_failure(tmp_path):
    for (suffix, pack), keep in product([("gz", gzip.compress), ("zst", zst)], [0.5, 0.0]):
        data = pack(b"".join(b'{"prompt": "%d"}\n' % (i * i * 7919) for i in range(20000)))
        (tmp_path / f"a.jsonl.{suffix}").write_bytes(data[: int(len(data) * keep)] if keep else b"not packed")
        (tmp_path / "b.txt").write_bytes(b"still read\n")
        *_, last, after = prompts(open_input([str(tmp_path / f"a.jsonl.{suffix}"), str(tmp_path / "b.txt")]))
        assert isinstance(last, Failure), (keep, suffix)
        assert "is damaged after line" in last.message, (keep, suffix)
        assert after == "still read", (keep, suffix)

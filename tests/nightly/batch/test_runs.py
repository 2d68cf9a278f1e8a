"""Real processes: killed and resumed, ended by signals, with faulty lines of every kind, on a full disk."""

import json

import pytest

from tests.batch.conftest import FAKE
from tests.slow.batch.test_runs import check_kills, start, wait_for


@pytest.mark.parametrize("form", [("texts",), ("jsonl", "--trace")])
def test_no_kill_loses_a_row_of_other_outputs(form):
    check_kills(*form)


def test_an_input_that_vanishes_meanwhile_leaves_what_is_finished(bench, start):
    folder = bench.folder / "in"
    folder.mkdir()
    lines = "".join(json.dumps({"prompt": f"Row {n}", "max_tokens": 100}) + "\n" for n in range(200))
    for name in ("a.jsonl", "b.jsonl"):
        (folder / name).write_text(lines)
    flags = [folder, "-o", bench.output, "--max-batch", "2"]
    process = start(*flags)
    wait_for(process, lambda: bench.journal.exists() and len(bench.journal.read_bytes().splitlines()) > 2)
    (folder / "b.jsonl").unlink()
    _, said = process.communicate()
    assert (process.returncode, "b.jsonl cannot be read" in said) == (2, True)
    assert "--resume continues the run" in said
    (folder / "b.jsonl").write_text(lines)
    assert bench.call(*flags, *FAKE, "--resume", "--max-batch", "64").code == 0
    assert len(bench.results) == 400

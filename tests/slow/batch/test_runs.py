"""Real processes: killed and resumed, ended by signals, with faulty lines of every kind, on a full disk."""

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from scripts.faulty_batch import FAULTS, check
from tests.batch.conftest import FAKE

ROOT = Path(__file__).parents[3]


@pytest.fixture
def start(spawn):
    """Start a process of `gencli batch` on the fake model, as `spawn` does."""
    return lambda *arguments, **options: spawn("batch", *arguments, *FAKE, text=True, **options)


def wait_for(process, condition):
    """Wait until it holds, while the process runs."""
    while not condition():
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
            raise AssertionError(process.stderr.read())


def check_kills(*form):
    command = [sys.executable, "scripts/kill_batch.py", "--kills", "5", "--rows", "12", "--seed", "1"]
    command += ["--format", *form]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 kills in " in done.stdout
    assert "lost 0, duplicated 0" in done.stdout


def test_no_kill_loses_a_row():
    check_kills("jsonl")


def test_faulty_lines_of_every_kind_fail_alone(tmp_path):
    assert check(tmp_path, rows=144, faults=len(FAULTS) * 2) == []


@pytest.mark.parametrize(("number", "drain"), [(signal.SIGINT, []), (signal.SIGTERM, ["--drain", "60"])])
def test_a_signal_ends_a_run_that_can_go_on(bench, start, number, drain):
    bench.write([{"prompt": f"Row {n}", "max_tokens": 400} for n in range(200)])
    flags = [bench.input, "-o", bench.output, "--max-batch", "2", "--no-timings"]
    process = start(*flags, *drain)
    wait_for(process, lambda: bench.journal.exists() and len(bench.journal.read_bytes().splitlines()) > 2)
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "--resume continues the run" in said
    assert bench.files == ["out.jsonl.journal"]
    lines = [json.loads(line) for line in bench.journal.read_text().splitlines()[1:]]
    assert {line["result"]["completion_tokens"] for line in lines} == {400}  # whole rows, or none


def test_a_full_disk_is_an_error_and_what_is_finished_is_safe(bench, start):
    bench.write([{"prompt": f"Row {n}"} for n in range(60)])
    flags = [bench.input, "-o", bench.output, "--no-timings"]
    room = 8000
    limits = (room, resource.RLIM_INFINITY)
    process = start(*flags, own=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))
    _, said = process.communicate()
    assert process.returncode == 6, said
    assert "The finished rows are safe in" in said
    assert not bench.output.exists()
    assert bench.journal.read_bytes().endswith(b"\n")
    assert bench.run("--resume", "--no-timings").code == 0
    assert [one["index"] for one in bench.results] == list(range(60))


def test_a_second_process_is_refused(bench, start):
    bench.write([{"prompt": f"Row {n}", "max_tokens": 400} for n in range(200)])
    process = start(bench.input, "-o", bench.output, "--max-batch", "1", own=True)
    wait_for(process, bench.journal.exists)
    done = bench.run("--resume")
    process.kill()
    process.communicate()
    assert (done.code, f"being written by process {process.pid}" in done.err) == (2, True)

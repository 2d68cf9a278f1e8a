"""Workers of Ray itself."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.batch.conftest import FAKE
from tests.helpers.mortal import Mortal

pytest.importorskip("ray")


ROOT = Path(__file__).parents[3]
OWN = [{}, {"max_tokens": 40}, {"temperature": 0.5, "n": 2}, {"seed": 3}, {"max_tokens": 0}, {"stop": "the"}]
FLAGS = ("--max-tokens", "24", "--max-batch", "4", "--seed", "5", "--no-timings")
RAY = ("--engine", "ray", "--workers", "2", "--worker-cpus", "0.5")


@pytest.fixture
def start():
    """Starts a batch in a process of its own."""
    with ExitStack() as stack:

        def start(*arguments, env):
            command = [sys.executable, "-m", "gencli", "batch", *map(str, arguments)]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = stack.enter_context(subprocess.Popen(command, cwd=ROOT, env=env, text=True, **pipes))
            stack.callback(process.kill)
            return process

        yield start


def test_a_worker_dies_and_the_result_is_that_of_this_process(bench, start, monkeypatch):
    bench.write([{"prompt": f"The fox {n}", **OWN[n % len(OWN)]} for n in range(36)])
    mortal = Mortal(bench.folder)
    monkeypatch.setenv(*next(iter(mortal.env.items())))
    flags = (bench.input, "--plugin", mortal.plugin, "--stage", "mortal=40", *FLAGS)
    env = os.environ | {"PYTHONPATH": str(ROOT)}  # and no RAY_ADDRESS: a Ray for this run alone
    traces = [bench.folder / "ray.jsonl", bench.folder / "plain.jsonl"]
    out, said = (process := start(*flags, "--trace", traces[0], *RAY, env=env)).communicate()
    assert process.returncode == 7, said  # max_tokens 0 is an error of its row
    assert mortal.has_killed
    assert "A worker has died" in said
    assert {json.loads(line)["error"] is None for line in out.splitlines()} == {True, False}
    plain = bench.call(*flags, "--trace", traces[1])
    assert (plain.code, plain.out) == (7, out)
    found, wanted = (sorted(trace.read_text().splitlines()) for trace in traces)
    assert found == wanted


START = """
import sys, ray
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster():
    """The environment of processes that use one Ray of two CPUs, whose token only they know."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    env = os.environ | token | {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", START], text=True, env=env, cwd=ROOT, **pipes) as process:
        yield env | {"RAY_ADDRESS": process.stdout.readline().strip()}
        process.stdin.close()


def test_a_run_that_is_cut_goes_on(bench, start, cluster):
    bench.write([{"prompt": f"Row {n}", "max_tokens": 200} for n in range(80)])
    flags = (bench.input, "-o", bench.output, *FAKE, "--max-batch", "2", "--no-timings", "--resume")
    for number, code, drain in ((signal.SIGKILL, -9, "0"), (signal.SIGTERM, 130, "60")):
        before = len(finished(bench.journal))
        process = start(*flags, *RAY, "--drain", drain, env=cluster)
        while len(finished(bench.journal)) < before + 3:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
                raise AssertionError(process.stderr.read())
        process.send_signal(number)
        _, said = process.communicate()
        assert process.returncode == code, said
    cut = finished(bench.journal)
    assert len({line["row"] for line in cut}) == len(cut) < 80
    assert {line["result"]["completion_tokens"] for line in cut} == {200}  # whole rows, or none
    assert bench.call(*flags).code == 0  # without Ray
    found = bench.output.read_bytes()
    assert bench.call(*flags[:-1], "--overwrite").code == 0
    assert bench.output.read_bytes() == found


def test_workers_read_the_keys_that_rows_name(bench, start, cluster):
    flags = [bench.input, *FAKE, "--no-timings"]
    for number, name in enumerate(("acme", "birch")):
        (bench.folder / name).write_text(f"{number}")
        flags += ["--named-key", f"{name}={bench.folder / name}"]
    bench.write(
        [{"prompt": "a", "watermark": "kgw", "watermark_key": name} for name in ("acme", "birch") * 3]
    )
    process = start(*flags, *RAY, env=cluster)
    out, said = process.communicate()
    assert process.returncode == 0, said
    assert out == bench.call(*flags).out
    assert len(set(re.findall(r'"key": "#\w+"', out))) == 2


def finished(journal):
    """The whole lines of a journal, without its header."""
    lines = journal.read_bytes().splitlines(keepends=True)[1:] if journal.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]

"""The same batch on workers of Ray: equal bytes, whoever dies in the middle."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers.mortal import Mortal

pytest.importorskip("ray")


ROOT = Path(__file__).parents[4]


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

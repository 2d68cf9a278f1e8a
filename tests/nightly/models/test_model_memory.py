"""The planned memory of a model is what it takes.

A model over several devices: split over two processes it writes what it writes in one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gencli.cli.app import main
from tests.models.test_model_memory import folder
from tests.models.tiny_models import NATIVE_CONFIGS
from tests.slow.models.test_model_memory import check_plan


@pytest.mark.parametrize("kind", NATIVE_CONFIGS)
def test_weights_and_cache_of_all_models_take_what_is_planned(kind: str, tmp_path: Path) -> None:
    for dtype in ("float32", "bfloat16"):
        check_plan(tmp_path / dtype, kind, dtype)


ROOT = Path(__file__).parents[3]
FLAGS = ("--seed", "3", "--max-tokens", "12", "--no-timings", "-q")


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"The fox {n} " * n}) + "\n" for n in range(1, 12)))
    return path


def test_two_processes_write_what_one_writes_and_only_once(folder, rows, capfd):
    command = ["batch", str(rows), "--model", str(folder), *FLAGS]
    assert main(command) == 0
    plain = capfd.readouterr().out
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    split = [*launch, "-m", "gencli", *command, "--tp", "2"]
    done = subprocess.run(split, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert texts(done.stdout) == texts(plain)
    assert len(texts(plain)) == 11


def texts(out):
    """What the rows came to, without what the rounding of another sum changes."""
    return [(row["index"], row["text"], row["finish_reason"]) for row in map(json.loads, out.splitlines())]

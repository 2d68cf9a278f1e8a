"""lm-evaluation-harness on local tasks: every way gives the numbers of the harness's own backend `hf`."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.slow.clients.test_lm_eval import ROOT, TASKS, evaluate, expected, same, tiny

pytestmark = pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm-eval is not installed")


def test_the_launcher(expected, tmp_path):
    words = "-m gencli.lm_eval run --model gencli --tasks brindle_choice"
    command = [sys.executable, *words.split()]
    command += ["--model_args", "pretrained=tiny", "--include_path", TASKS]
    command += ["--log_samples", "--output_path", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "|brindle_choice" in done.stdout
    (log,) = tmp_path.rglob("samples_brindle_choice_*.jsonl")
    samples = [json.loads(line)["filtered_resps"] for line in log.read_text().splitlines()]
    assert len(samples) == 3
    found = [[(float(value), flag == "True") for value, flag in answers] for answers in samples]
    same({"brindle_choice": found}, {"brindle_choice": expected["brindle_choice"]})

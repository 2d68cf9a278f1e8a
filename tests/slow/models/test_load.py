"""Loading: every fault has one message, and what loads is what was stored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from tests.models.test_load import edit_weights, folder, saved


def test_nothing_reaches_the_terminal(folder: Path) -> None:
    edit_weights(folder, lambda weights: weights.update(stray=torch.zeros(1)))
    code = f"from gencli.models.hf_runner import HFRunner; print(HFRunner.load({str(folder)!r}).spec.notices)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout == "('1 tensors of the checkpoint are not used, such as stray',)\n"

"""Loading: every fault has one message, and what loads is what was stored."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from gencli.models.hf_runner import HFRunner
from tests.models.test_load import edit_weights, folder, saved


def test_nothing_reaches_the_terminal(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    edit_weights(folder, lambda weights: weights.update(stray=torch.zeros(1)))
    with warnings.catch_warnings(action="error"):
        notices = HFRunner.load(str(folder)).spec.notices
    assert notices == ("1 tensors of the checkpoint are not used, such as stray",)
    assert capfd.readouterr() == ("", "")

"""An inflated model is larger and says the same."""

import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).parents[2]
TINY = ROOT / "gencli" / "assets" / "tiny"


def test_an_inflated_model_has_the_logits_of_the_small_one(tmp_path):
    sizes = ["--hidden", "320", "--intermediate", "1000", "--layers", "8"]
    command = [sys.executable, "scripts/inflate.py", str(TINY), str(tmp_path / "big"), *sizes]
    assert (
        "12 million parameters"
        in subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    )
    small, large = (
        AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32) for path in (TINY, tmp_path / "big")
    )
    ids = torch.randint(3, 2048, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        assert torch.allclose(small(ids).logits, large(ids).logits, atol=1e-4)

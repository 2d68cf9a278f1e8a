"""A GGUF file runs as the model it was converted from."""

from pathlib import Path

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from tests.helpers.gguf_files import write_model
from tests.models.gguf.test_reader import CONFIGS, built, check_quantized, check_slices, load, texts
from tests.models.tiny_models import PROMPTS

# Of them one for each way to attend, and one whose rotary factors are scaled.
SUITE = ("llama", "gemma3", "qwen3_moe", "llama3")


def logits(runner: DecoderRunner) -> torch.Tensor:
    """Logits of all positions of the longest prompt [N, V], some of them beyond the window."""
    prompt = tuple(PROMPTS[-1])
    made = runner.forward(StepPlan((Feed(0, 0, prompt, len(prompt)),)))
    runner.release(0)
    return made


def check_file(tmp_path: Path, kind: str) -> None:
    """It says what its original says."""
    model = built(CONFIGS[kind]())
    model.save_pretrained(tmp_path)
    write_model(tmp_path / "model.gguf", model)
    ours, original = load(tmp_path / "model.gguf"), load(tmp_path)
    torch.testing.assert_close(logits(ours), logits(original), atol=1e-4, rtol=0)
    assert texts(ours) == texts(original)


@pytest.mark.parametrize("kind", SUITE)
def test_a_file_says_what_its_original_says(tmp_path: Path, kind: str) -> None:
    check_file(tmp_path, kind)


def test_a_format_is_read_in_slices(tmp_path: Path) -> None:
    check_slices(tmp_path, "Q4_K")


def test_quantized_weights_run_as_their_widened_numbers(tmp_path: Path) -> None:
    check_quantized(tmp_path, "Q4_K")

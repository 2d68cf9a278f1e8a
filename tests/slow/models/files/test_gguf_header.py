"""A GGUF file runs as the model it was converted from.

Files in parts: any part names the model; missing and foreign parts are refused by name.
"""

from pathlib import Path

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.files.checkpoint import identify
from gencli.models.files.gguf_header import read_gguf_head
from gencli.models.files.model_card import read_card
from tests.helpers.gguf_files import write_model
from tests.models.files.test_gguf_header import (
    CONFIGS,
    built,
    check_quantized,
    check_slices,
    load_gguf,
    split,
    texts,
    whole_model,
)
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
    ours, original = load_gguf(tmp_path / "model.gguf"), load_gguf(tmp_path)
    torch.testing.assert_close(logits(ours), logits(original), atol=1e-4, rtol=0)
    assert texts(ours) == texts(original)


@pytest.mark.parametrize("kind", SUITE)
def test_a_file_says_what_its_original_says(tmp_path: Path, kind: str) -> None:
    check_file(tmp_path, kind)


def test_a_format_is_read_in_slices(tmp_path: Path) -> None:
    check_slices(tmp_path, "Q4_K")


def test_quantized_weights_run_as_their_widened_numbers(tmp_path: Path) -> None:
    check_quantized(tmp_path, "Q4_K")


def test_any_part_is_the_model(whole_model: Path) -> None:
    parts = split(whole_model)
    for part in parts[:2]:
        assert texts(load_gguf(part)) == texts(load_gguf(whole_model))
        assert read_gguf_head(part).files == tuple(parts)
        assert read_card(part).weights.bytes == sum(one.stat().st_size for one in parts)
    assert identify(parts[1]).sha256 == identify(parts[0]).sha256 != identify(whole_model).sha256

"""Weights of four bits keep their bits: products, texts, memory, and what is refused."""

from pathlib import Path

import pytest
import torch
import transformers as hf

from gencli.core.request import Feed, StepPlan
from gencli.models.files.local_models import bundled_folder
from gencli.models.files.model_card import read_card
from gencli.models.model_memory import weight_bytes
from gencli.text.tokenizer import HFTokenizer
from tests.helpers.gguf_files import write_model
from tests.models.files.test_gguf_header import load_gguf
from tests.models.files.test_gguf_weights import CPU, RECORDS, model
from tests.models.loops import Job, decode
from tests.models.test_model_memory import parts


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_a_trained_model_says_the_same_as_with_widened_numbers(tmp_path: Path, kind: str) -> None:
    folder = bundled_folder("tiny")
    write_model(tmp_path / "model.gguf", hf.AutoModelForCausalLM.from_pretrained(folder), kind)
    kept, wide = load_gguf(tmp_path / "model.gguf", dtype="auto"), load_gguf(tmp_path / "model.gguf")
    assert (kept.spec.quantization, kept.spec.kernels, kept.spec.notices) == (kind, ("compiled",), ())
    assert (wide.spec.quantization, kept.spec.dtype) == ("", torch.float32)
    prompts = [HFTokenizer.load(folder).encode(text) for text in RECORDS]
    jobs = [Job(lane, prompt) for lane, prompt in enumerate(prompts)]
    assert decode(kept, jobs, count=12) == decode(wide, jobs, count=12)
    feed = StepPlan((Feed(0, 0, tuple(prompts[0]), len(prompts[0])),))
    found, true = kept.forward(feed), wide.forward(feed)
    assert (found - true).norm() < 0.01 * true.norm()


@pytest.mark.parametrize(("kind", "tied"), [("Q4_0", False), ("Q4_K", True)])
def test_memory_is_that_of_the_kept_bits(tmp_path: Path, kind: str, tied: bool) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, model(tie_word_embeddings=tied, vocab_size=20_480), kind)
    runner = load_gguf(path, dtype="auto")
    planned = weight_bytes(read_card(path), torch.float32, CPU, "kept")
    assert sum(parts(runner._decoder)) == pytest.approx(planned, rel=0.05)
    assert planned < 0.8 * read_card(path).weights.parameters
    assert weight_bytes(read_card(path), torch.float32, CPU, "none") > 4 * planned

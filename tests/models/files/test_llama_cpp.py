"""Greedy texts and ids are those of llama.cpp, where its Python package is installed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from gencli.core.request import Feed, StepPlan
from gencli.models.files.local_models import bundled_folder
from gencli.text.tokenizer import HFTokenizer
from tests.helpers.gguf_files import add_byte_level, add_sentencepiece, write_model
from tests.models.files.test_gguf_header import CONFIGS, built, load_gguf, texts
from tests.models.files.test_gguf_weights import RECORDS
from tests.models.tiny_models import PROMPTS
from tests.text.test_gguf_tokenizer import byte_level, pieces, samples

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")


def written(path: Path, kind: str, vocabulary: str) -> None:
    config = CONFIGS[kind]()
    config.vocab_size = len(pieces()) if vocabulary == "sentencepiece" else 700

    def add(writer: Any, count: int) -> None:
        if vocabulary == "sentencepiece":
            add_sentencepiece(writer, pieces(), bos=1, eos=2)
        else:
            add_byte_level(writer, byte_level(vocabulary), vocabulary, count=count, bos=0, eos=1)

    write_model(path, built(config), add_vocabulary=add)


def greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    model.reset()
    model.eval(prompt)
    found: list[int] = []
    for _ in range(count):
        pointer = llama_cpp.llama_get_logits(model._ctx.ctx)
        found.append(int(np.ctypeslib.as_array(pointer, shape=(model.n_vocab(),)).argmax()))
        model.eval(found[-1:])
    return found


@pytest.mark.parametrize(
    ("kind", "vocabulary"),
    [*((kind, "sentencepiece") for kind in CONFIGS), ("llama", "llama-bpe"), ("llama", "smollm")],
)
def test_llama_cpp_says_the_same(tmp_path: Path, kind: str, vocabulary: str) -> None:
    path = tmp_path / "model.gguf"
    written(path, kind, vocabulary)
    model = llama_cpp.Llama(str(path), n_ctx=256, n_threads=1, type_k=0, type_v=0, verbose=False)
    assert texts(load_gguf(path)) == [greedy(model, [*prompt], 16) for prompt in PROMPTS]
    tokenizer = HFTokenizer.load(path)
    for text in samples(60):
        assert tokenizer.encode(text) == model.tokenize(text.encode(), add_bos=True, special=True), text


def test_kept_bits_are_as_near_to_widened_ones_as_llama_cpp_is(tmp_path: Path) -> None:
    """llama.cpp rounds activations to 8 bits, gencli to bfloat16, so that texts may differ."""
    folder, path = bundled_folder("tiny"), tmp_path / "model.gguf"

    def add(writer: Any, count: int) -> None:
        add_byte_level(writer, byte_level("llama-bpe"), "llama-bpe", count=count, bos=0, eos=1)

    write_model(path, hf.AutoModelForCausalLM.from_pretrained(folder), "Q4_0", add)
    model = llama_cpp.Llama(str(path), n_ctx=256, n_threads=1, type_k=0, type_v=0, verbose=False)
    kept, wide = load_gguf(path, dtype="auto"), load_gguf(path)
    for text in RECORDS:
        prompt = HFTokenizer.load(folder).encode(text)
        feed = StepPlan((Feed(0, 0, tuple(prompt), 1),))
        ours, true = kept.forward(feed)[0], wide.forward(feed)[0]
        kept.release(0)
        wide.release(0)
        model.reset()
        model.eval(prompt)
        pointer = llama_cpp.llama_get_logits(model._ctx.ctx)
        theirs = torch.from_numpy(np.ctypeslib.as_array(pointer, shape=(model.n_vocab(),)).copy())
        assert (ours - true).norm() < 0.01 * true.norm()
        assert (ours - theirs).norm() < 0.03 * true.norm()

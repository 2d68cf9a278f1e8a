"""What weights of few bits lose: perplexity, and KL divergence to float32, beside llama.cpp on the same text.

    pip install --no-deps --target LLAMA cyllama==0.2.18
    PYTHONPATH=.:LLAMA python scripts/bench/quality.py [--models rotated tiny english smol gemma] [--folder F]

`rotated` is SmolLM2 in another basis: its states x become Q x with a random orthogonal Q, after the weights
of norms were multiplied into the matrices behind them. Its logits are those of SmolLM2, which is checked, but
its weights lie on no grid of a file. `tiny` is the bundled model on its own held-out documents, `english` the
same model on the text of `make test-real`, which the others read too. `smol` and `gemma` are real models
whose floats come from the files that are measured beside them.

llama.cpp quantizes a GGUF file in float32 with the same floats; its keys and values are float32. Divergences
are from gencli's float32 logits of these floats. "bits" are those that a weight takes in the file, in the
layers and in all. Written files are kept in F, by default `quality` in the folder of the real models.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).parent.parent))

from tiny_corpus import documents

from gencli.core.request import Feed, StepPlan
from gencli.models.files.gguf_header import is_gguf, read_gguf_head
from gencli.models.files.local_models import find_local
from gencli.models.files.model_files import Quantize, read_table
from gencli.models.quantized_copy import quantize_model
from gencli.runtime.model_loading import ModelChoice, load, load_tokenizer
from tests.real.chats import STORY
from tests.real.models import CACHE, GEMMA, SMOL, folder, gguf

MODELS = ("rotated", "tiny", "english", "smol", "gemma")
FILES = {"smol": SMOL, "gemma": GEMMA}
# Formats of gencli beside those of llama.cpp with their numbers. Q4_1 has the bits of int4.
PAIRS: tuple[tuple[Quantize, Mapping[str, int]], ...] = (
    ("int8", {"Q8_0": 7}),
    ("int4", {"Q4_K_M": 15, "Q4_1": 3}),
)
SEED, DOCUMENTS, LONGEST = 20, 20, 512
CLOSE = 1e-3  # of logits of the rotated model to those of its source

Texts = Sequence[Sequence[int]]


def logits_of(model: Path, texts: Texts, **options: Any) -> torch.Tensor:
    """Return gencli's logits [N, V] behind each of the N tokens of all texts."""
    with torch.inference_mode():
        runner, parts = load(ModelChoice(str(model), device="cpu", **options)).runner, []
        for ids in texts:
            parts.append(runner.forward(StepPlan((Feed(0, 0, tuple(ids), len(ids)),))).float())
            runner.release(0)
    return torch.cat(parts)


def llama_logits(file: Path, texts: Texts, width: int) -> torch.Tensor:
    """Return llama.cpp's logits [N, V]."""
    target = file.with_suffix(".npy")
    llama("logits", str(file), str(width), str(target), text=json.dumps(texts))
    logits = torch.from_numpy(np.load(target))
    target.unlink()
    return logits


def llama(*words: str, text: str | None = None) -> None:
    """Run `be_llama` in a process of its own, since llama.cpp brings threads that spin."""
    command = [sys.executable, __file__, "--llama", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, input=text, text=True)


def be_llama(task: str, source: str, *words: str) -> None:
    """Quantize a file (TARGET FTYPE), or write logits behind the tokens of texts on stdin (WIDTH TARGET)."""
    import cyllama.llama.llama_cpp as lib

    lib.disable_logging()
    lib.llama_backend_init()
    if task == "quantize":
        settings = lib.LlamaModelQuantizeParams()
        settings.ftype, settings.nthread = int(words[1]), torch.get_num_threads()
        lib.model_quantize(source, words[0], settings)
        return
    texts, width = json.load(sys.stdin), int(words[0])
    # This release asks the model for its width by a name that the model does not have.
    model = type("Model", (lib.LlamaModel,), {"n_vocab": width})(source, lib.LlamaModelParams())
    options = lib.LlamaContextParams()
    options.n_ctx = options.n_batch = max(map(len, texts))
    options.type_k = options.type_v = 0  # float32
    options.n_threads = options.n_threads_batch = torch.get_num_threads()
    context, rows = lib.LlamaContext(model, options), []
    batch = lib.LlamaBatch(n_tokens=options.n_ctx, embd=0, n_seq_max=1)
    for ids in texts:
        context.kv_cache_clear()
        batch.reset()
        for place, token in enumerate(ids):
            batch.add(token, place, [0], True)
        context.decode(batch)
        rows += [np.array(context.get_logits_ith(place), np.float32) for place in range(len(ids))]
    np.save(words[1], np.stack(rows))


def losses(logits: torch.Tensor, exact: torch.Tensor, texts: Texts) -> tuple[float, float, float]:
    """Return perplexity, mean KL divergence from `exact`, and the share of the same most likely tokens."""
    ours, theirs = logits.double().log_softmax(-1), exact.double().log_softmax(-1)
    parts = zip(torch.split(ours, [*map(len, texts)]), texts, strict=True)
    known = torch.cat([part[:-1].gather(1, torch.tensor(ids[1:])[:, None]) for part, ids in parts])
    divergences = (theirs.exp() * (theirs - ours)).sum(-1)
    same = (logits.argmax(-1) == exact.argmax(-1)).double()
    return math.exp(-float(known.mean())), float(divergences.mean()), float(same.mean())


def rotate(source: Path, target: Path) -> None:
    """Write a Llama whose states are multiplied by a random orthogonal matrix; its embeddings are untied."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float64)
    ids, width = torch.tensor([tokenizer.encode(STORY)]), model.config.hidden_size
    with torch.inference_mode():
        before = model(ids).logits
        noise = torch.randn(width, width, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
        basis = torch.linalg.qr(noise).Q
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(model.model.embed_tokens.weight.clone())
        model.model.embed_tokens.weight.copy_(model.model.embed_tokens.weight @ basis.T)
        readers = [(model.model.norm, [model.lm_head])]
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            readers.append((layer.input_layernorm, [attention.q_proj, attention.k_proj, attention.v_proj]))
            readers.append((layer.post_attention_layernorm, [mlp.gate_proj, mlp.up_proj]))
            for writer in (attention.o_proj, mlp.down_proj):
                writer.weight.copy_(basis @ writer.weight)
        for norm, products in readers:
            for product in products:
                product.weight.copy_(product.weight * norm.weight @ basis.T)
            norm.weight.fill_(1.0)
        model.float()
        furthest = float((model(ids).logits - before).abs().max())
    print(f"The logits of the rotated model differ by at most {furthest:.1e}.", file=sys.stderr)
    if furthest > CLOSE:
        raise SystemExit("It is another model.")
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def as_gguf(model: Path, target: Path) -> None:
    """Write a folder as a GGUF file in float32, with a vocabulary that nobody reads."""
    from transformers import AutoModelForCausalLM

    from tests.helpers.gguf_files import write_model

    write_model(target, AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32))


def kept(path: Path, write: Callable[[Path], object]) -> Path:
    """Return a file or folder, written where it is absent."""
    if not path.exists():
        part = path.with_name(f"part-{path.name}")
        write(part)
        part.rename(path)
    return path


def sizes(path: Path, *, in_layers: bool) -> tuple[int, int]:
    """Return the bytes of tensors of a folder or file, and how many numbers they are."""
    if is_gguf(path):
        tensors = read_gguf_head(path).tensors
        parts = [(name, one.nbytes, math.prod(one.shape)) for name, one in tensors.items()]
    else:
        table = read_table(sorted(path.glob("*.safetensors")))
        parts = [(name, one.nbytes, one.count) for name, one in table.items()]
    inner = [part for part in parts if not in_layers or part[0].startswith(("model.layers.", "blk."))]
    return sum(nbytes for _, nbytes, _ in inner), sum(count for _, _, count in inner)


def source_of(name: str, where: Path) -> Path:
    """Return the folder of a model in float32."""
    if name in FILES:
        return folder(FILES[name])
    if name == "rotated":
        return kept(where / name, lambda path: rotate(folder(SMOL), path))
    found = find_local("tiny")
    assert found is not None
    return found


def measure(name: str, where: Path) -> None:
    """Print the table of a model."""
    model = source_of(name, where)
    tokenizer = load_tokenizer(str(model))
    texts = [tokenizer.encode(STORY)]
    if name == "tiny":
        texts = [tokenizer.encode(text)[:LONGEST] for text in islice(documents(SEED, "held-out"), DOCUMENTS)]
    exact = logits_of(model, texts, dtype="float32")

    def show(side: str, stored: Path, logits: torch.Tensor) -> None:
        perplexity, divergence, same = losses(logits, exact, texts)
        bits = [8 * sizes(stored, in_layers=one)[0] / sizes(model, in_layers=one)[1] for one in (True, False)]
        shown = f"{bits[0]:6.2f} {bits[1]:5.2f} {perplexity:11.3f} {divergence:14.6f} {100 * same:9.1f} %"
        print(f"{side:20} {shown}", flush=True)

    def show_rounded(quantize: Quantize) -> None:
        copy = kept(
            where / f"{model.name}-{quantize}", lambda path: quantize_model(str(model), path, quantize)
        )
        show(f"gencli {quantize}", copy, logits_of(model, texts, quantize=quantize))

    def show_llama(side: str, file: Path) -> None:
        show(f"llama.cpp {side}", file, llama_logits(file, texts, exact.shape[1]))

    def show_llama_rounded(kind: str, number: int) -> None:
        words = ("quantize", str(wide))
        file = where / f"{model.name}-{kind}.gguf"
        show_llama(kind, kept(file, lambda path: llama(*words, str(path), str(number))))

    print(
        f"{name}, {len(exact)} tokens".ljust(20), "bits of layers, all  perplexity  KL divergence  same token"
    )
    show("gencli float32", model, exact)
    wide = kept(where / f"{model.name}-F32.gguf", lambda path: as_gguf(model, path))
    show_llama("F32", wide)
    if name in FILES:
        show("gencli, the file", gguf(FILES[name]), logits_of(gguf(FILES[name]), texts))
        show_llama("the file", gguf(FILES[name]))
    for quantize, kinds in PAIRS:
        show_rounded(quantize)
        for kind, number in kinds.items():
            show_llama_rounded(kind, number)


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--folder", type=Path, default=CACHE / "quality")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name in asked.models:
        measure(name, asked.folder)


if __name__ == "__main__":
    be_llama(*sys.argv[2:]) if sys.argv[1:2] == ["--llama"] else main()

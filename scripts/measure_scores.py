"""Measure the memory of scoring a long text against a short one: `python scripts/measure_scores.py`.

A small random model of 128,256 ids scores a text of 200 tokens and one of 8,000, under the model alone and
under a chain. Each run has a process of its own; memory is the peak of the resident set, in MiB, from the
loaded model on.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

IDS, SHORT, LONG = 128_256, 200, 8_000
MODES = ("raw", "processed")


def make_model(folder: Path) -> None:
    """Write a random Llama with a wide vocabulary into the folder."""
    import torch
    import transformers as hf

    from gencli.models.files.local_models import find_local

    torch.manual_seed(0)
    config = hf.LlamaConfig(
        vocab_size=IDS,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=LONG + 8,
        bos_token_id=0,
        eos_token_id=1,
    )
    hf.LlamaForCausalLM(config).save_pretrained(folder)
    source = find_local("tiny")
    assert source is not None
    for path in source.glob("tokenizer*"):
        shutil.copy(path, folder)


def peak() -> float:
    """Return the peak of the resident set of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def measure(folder: str, mode: str, tokens: int) -> float:
    """Return the increase of the peak in MiB while a text is scored."""
    import torch

    from gencli.core.request import Limits, Request
    from gencli.runtime.model_loading import ModelChoice, load
    from gencli.runtime.wiring import bare_engine
    from processors.chain import Chain

    torch.set_num_threads(2)
    loaded = load(ModelChoice(name=folder, dtype="float32", max_batch=1))
    generator = torch.Generator().manual_seed(1)
    ids = tuple(torch.randint(0, 256, (tokens,), generator=generator).tolist())

    def score(name: str, ids: Sequence[int]) -> None:
        request = Request(name, tuple(ids), limits=Limits(0), prompt_logprobs=5)
        if mode == "processed":
            chain = Chain.parse("repetition=1.1 | temperature=0.8 | top_p=0.9")
            request = Request(
                name, tuple(ids[:1]), chain, given=tuple(ids[1:]), logprobs=5, limits=Limits(len(ids))
            )
        engine.submit(request)
        assert not [event for event in engine.run() if type(event).__name__ == "Error"]

    engine = bare_engine(loaded.runner, loaded.tokenizer, max_batch=1)
    score("warm", ids[:2])
    before = peak()
    score("text", ids)
    return peak() - before


def main(arguments: Sequence[str]) -> None:
    """Print a table; with arguments measure one run."""
    if arguments:
        folder, mode, tokens = arguments
        print(f"{measure(folder, mode, int(tokens)):.0f}")
        return
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder))
        print("| mode | tokens | MiB |\n|---|---|---|")
        for mode in MODES:
            for count in (SHORT, LONG):
                command = [sys.executable, __file__, folder, mode, str(count)]
                found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
                print(f"| `{mode}` | {count:,} | {found} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

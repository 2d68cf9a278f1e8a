"""A batch that calls back for each text and goes on after a crash, with the same texts to the byte."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from gencli import LLM, Completion, SamplingParams

SIZE = 4  # prompts of a chunk; a chunk that was cut off runs again, so that its draws are the same
PARAMS = SamplingParams(temperature=0.8, max_tokens=16)


def run(llm: LLM, prompts: Sequence[str], path: Path, callback: Callable[[Completion], None]) -> None:
    """Append a line for each prompt to the file, and continue behind the last whole chunk in it."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    done = len(lines) // SIZE * SIZE
    path.write_text("".join(lines[:done]))
    for start in range(done, len(prompts), SIZE):
        for out in llm.generate(prompts[start : start + SIZE], PARAMS, seed=start):
            callback(out)
            with path.open("a") as file:
                file.write(json.dumps({"prompt": out.prompt, "text": out.text}) + "\n")


def crash(out: Completion) -> None:
    if out.prompt.endswith("5"):
        raise KeyboardInterrupt


prompts = [f"Once upon a time, {number}" for number in range(10)]
with LLM("tiny", dtype="float32") as llm, tempfile.TemporaryDirectory() as folder:
    whole, resumed = Path(folder, "whole.jsonl"), Path(folder, "resumed.jsonl")
    run(llm, prompts, whole, lambda out: print(out.prompt, "->", out.text))
    try:
        run(llm, prompts, resumed, crash)
    except KeyboardInterrupt:
        print(f"Stopped behind {len(resumed.read_text().splitlines())} rows.")
    run(llm, prompts, resumed, lambda out: None)
    print("The same bytes:", whole.read_bytes() == resumed.read_bytes())

"""The product's files that one plain decode step runs: a list of docs/contributing/structure.md.

    PYTHONPATH=. python scripts/step_files.py            print files, functions, lines and depth
    PYTHONPATH=. python scripts/step_files.py --write    update docs/contributing/structure.md

The step is the 12th of a text by the bundled model `tiny`, at temperature 0.7 and top-p 0.9, without drafts.
By then everything that is made once, such as a prefill or an import, is done.
"""

from __future__ import annotations

import argparse
import gc
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from gencli.config.job import make_job, make_request
from gencli.config.layers import gather
from gencli.runtime.llm import LLM

__all__ = ["FileRun", "listed", "traced"]

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "contributing" / "structure.md"
BEGIN, END = "<!-- step: begin -->\n", "<!-- step: end -->"
STEP = 12
PRODUCT = tuple(f"{ROOT / package}/" for package in ("gencli", "processors"))


@dataclass(slots=True)
class FileRun:
    """What a step ran of a file. `depth`: the most product functions on the stack at once."""

    functions: set[str] = field(default_factory=set)
    lines: set[int] = field(default_factory=set)
    depth: int = 0


def traced() -> dict[str, FileRun]:
    """Return what the step ran, by path from the root, in the order in which the files are entered."""
    values = {"temperature": 0.7, "top_p": 0.9, "max_tokens": STEP + 8}
    job = make_job(gather(values, {}))
    runs: dict[str, FileRun] = {}
    with LLM("tiny", threads=1) as llm:
        engine, prompt = llm.engine, tuple(llm.tokenizer.encode("Once upon a time"))
        engine.submit(make_request(job, "story", prompt, 1, llm.tokenizer))
        for _ in range(STEP - 1):
            engine.step()
        outer = sys.gettrace()  # a debugger's, or that of a measurement of coverage
        gc.disable()  # finalizers of other objects are not part of the step
        sys.settrace(_tracer(runs))
        try:
            engine.step()
        finally:
            sys.settrace(outer)
            gc.enable()
        engine.interrupt()
        for _ in engine.run():
            pass
    return runs


def listed(runs: dict[str, FileRun]) -> str:
    """Return the list of the page: the files in the order in which the step enters them."""
    return "".join(f"{number}. `{path}`\n" for number, path in enumerate(runs, start=1))


def _tracer(runs: dict[str, FileRun]) -> Any:
    """Return a trace function that records product frames; of other frames it sees the calls only."""

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(PRODUCT):
            return None
        run = runs.setdefault(Path(path).relative_to(ROOT).as_posix(), FileRun())
        run.functions.add(frame.f_code.co_qualname)
        run.depth = max(run.depth, _depth(frame))

        def line(inner: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                run.lines.add(inner.f_lineno)
            return line

        return line

    return enter


def _depth(frame: FrameType | None) -> int:
    """Return the number of product functions among a frame and its callers."""
    count = 0
    while frame:
        count += frame.f_code.co_filename.startswith(PRODUCT)
        frame = frame.f_back
    return count


def _report(runs: dict[str, FileRun]) -> None:
    print(f"{'file':46} {'functions':>9} {'lines run':>9} {'lines':>6} {'depth':>5}")
    for path, run in runs.items():
        length = len((ROOT / path).read_text(encoding="utf-8").splitlines())
        print(f"{path:46} {len(run.functions):9} {len(run.lines):9} {length:6} {run.depth:5}")
    functions = sum(len(run.functions) for run in runs.values())
    lines = sum(len(run.lines) for run in runs.values())
    depth = max(run.depth for run in runs.values())
    print(f"{len(runs)} files, {functions} functions, {lines} lines run, depth {depth}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="update docs/contributing/structure.md")
    step = traced()
    if parser.parse_args().write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(before + BEGIN + listed(step) + END + rest.partition(END)[2], encoding="utf-8")
    _report(step)

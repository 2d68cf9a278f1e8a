"""Make the pictures of docs/explain.md: pages of runs of the bundled model, in headless Chromium.

    PYTHONPATH=. python scripts/make_page_pictures.py

The letters are those of this machine. tests/test_pages.py checks names and sizes.
"""

from __future__ import annotations

import base64
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from gencli import LLM
from gencli.explain.page import (
    Axis,
    Cell,
    CompareRow,
    Measure,
    PageNode,
    Side,
    compare_page,
    page,
    sweep_page,
    tree_page,
)
from gencli.explain.token_record import Record
from gencli.explain.trace_file import TracedText, read_trace
from tests.helpers.browser import Browser

__all__ = ["FOLDER", "NAMES"]

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
NAMES = ("page-light", "page-dark", "page-narrow", "page-compare", "page-sweep", "page-fork")
_PROMPT = "Once upon a time"
_CHAIN = ("--temperature", "1.3", "--repetition-penalty", "1.2", "--min-p", "0.02", "--top-k", "40")
_BESIDE = "Object.assign(document.getElementById('beside'), {value: 1}).dispatchEvent(new Event('change'))"


def main() -> None:
    """Write the named pictures, or all."""
    if unknown := set(sys.argv[1:]) - set(NAMES):
        sys.exit(f"There is no picture {', '.join(unknown)}; there are {', '.join(NAMES)}.")
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(Path(folder) / "profile")
        try:
            for name in sys.argv[1:] or NAMES:
                picture = photographed(browser, folder, *_shown(name, folder))
                (FOLDER / f"{name}.png").write_bytes(picture)
                print(f"{name}.png: {len(picture):,} bytes")
        finally:
            browser.close()


def _shown(name: str, folder: str) -> tuple[str, tuple[int, int], tuple[str, ...]]:
    """Return the page of a picture, the size of the window, and the steps to what it shows."""
    if name == "page-compare":
        return compared(folder), (1200, 760), ("n",)
    if name == "page-sweep":
        return swept(), (1200, 520), ("n",)
    if name == "page-fork":
        return forked(folder), (1200, 660), ("ArrowDown", "ArrowDown")
    texts = traced(folder, *_CHAIN, "--seed", "5", "-n", "2", "--max-tokens", "90", "--trace-top", "8")
    if name == "page-dark":
        return page(texts), (1100, 560), ("t", _BESIDE, "n", "n", "ArrowDown", "ArrowDown")
    if name == "page-narrow":
        return page(texts[:1]), (400, 800), ("u", "u", "u")
    return page(texts[:1]), (1200, 800), ("u", "u", "ArrowDown", "ArrowDown", "ArrowDown")


def photographed(
    browser: Browser, folder: str, html: str, size: tuple[int, int], steps: Sequence[str]
) -> bytes:
    """Return the PNG of a page after keys, or JavaScript, if a step is more than a key's name."""
    file = Path(folder) / "page.html"
    file.write_text(html, encoding="utf-8")
    browser.call(
        "Emulation.setEmulatedMedia",
        features=[
            {"name": "prefers-color-scheme", "value": "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ],
    )
    width, height = size
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=width < 600,
    )
    browser.call("Page.navigate", url=file.as_uri())
    browser.until("performance.getEntriesByName('drawn').length")
    for step in steps:
        if "." in step:
            browser.value(step)
        else:
            browser.press(step)
    browser.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])


def traced(folder: str, *words: str, prompt: str = _PROMPT) -> list[TracedText]:
    """Return the texts of a run."""
    file = Path(folder) / "trace.jsonl"
    command = [sys.executable, "-m", "gencli", "run", "--threads", "1", "--trace", str(file), "-q", *words]
    subprocess.run([*command, "--", prompt], check=True, capture_output=True)
    with file.open(encoding="utf-8") as lines:
        return read_trace(lines)


def compared(folder: str) -> str:
    """Return the page of two temperatures up to the place where their texts part."""
    kinds = ("0.8", "1.4")
    one, other = (
        traced(folder, "--top-k", "40", "--chain", "top_k,temperature", "--temperature", kind, "--seed", "17",
               "--max-tokens", "60", "--trace-top", "40")[0]
        for kind in kinds
    )  # fmt: skip
    sides = tuple(
        Side(
            f"temperature {kind}", f"top_k=40 | temperature={kind}", [record["id"] for record in text.records]
        )
        for kind, text in zip(kinds, (one, other), strict=True)
    )
    names = {record["id"]: record["text"] for text in (one, other) for record in text.records}
    return compare_page(_PROMPT, (sides[0], sides[1]), [*_rows(one.records, other.records)], names)


def _rows(one: Sequence[Record], other: Sequence[Record]) -> Iterator[CompareRow]:
    """Yield the places of the same text before: the lists have all tokens that are left."""
    for a, b in zip(one, other, strict=False):
        p, q = ({token: value for token, _, value in record["final"]["top"]} for record in (a, b))
        distance = sum(abs(p.get(token, 0) - q.get(token, 0)) for token in p.keys() | q.keys()) / 2
        yield CompareRow(
            a["pos"],
            distance,
            _divergence(p, q),
            a["id"],
            b["id"],
            b["decided_by"] if a["id"] != b["id"] else (),
        )
        if a["id"] != b["id"]:
            return


def _divergence(p: Mapping[int, float], q: Mapping[int, float]) -> float:
    """Return the KL divergence of p from q, in bits."""
    terms = (
        math.inf if not q.get(token) else value * math.log2(value / q[token])
        for token, value in p.items()
        if value
    )
    return max(0.0, sum(terms))


def swept() -> str:
    """Return the page of temperatures and cutoffs."""
    axes = (
        Axis("temperature", ("0.4", "0.7", "1", "1.3", "1.6")),
        Axis("min_p", ("0", "0.02", "0.05", "0.1", "0.2")),
    )
    measures = (Measure("surprise", "bits a token"), Measure("distinct-2"), Measure("words"))
    cells = []
    with LLM("tiny", threads=1) as llm:
        for i, temperature in enumerate(axes[0].values):
            for j, cutoff in enumerate(axes[1].values):
                values = {"temperature": float(temperature), "min_p": float(cutoff)}
                done = llm.generate(_PROMPT, seed=5, max_tokens=80, logprobs=0, **values)
                words = done.text.split()
                pairs = [*pairwise(words)]
                bits = [-one.chosen.logprob / math.log(2) for one in done.samples[0].logprobs or ()]
                varied = f"--temperature {temperature} --min-p {cutoff}"
                command = f"gencli run --seed 5 --max-tokens 80 {varied} '{_PROMPT}'"
                found = (sum(bits) / max(1, len(bits)), len(set(pairs)) / max(1, len(pairs)), len(words))
                cells.append(Cell((i, j), found, done.text, command))
    return sweep_page(f'tiny, "{_PROMPT}"', axes, measures, cells)


def forked(folder: str) -> str:
    """Return the page of two forks, each at a token with several likely ones."""
    nodes, names = [PageNode(None, None, None, "")], dict[int, str]()
    _fork(folder, nodes, names, 0, _PROMPT, depth=2)
    return tree_page(f'Branches of "{_PROMPT}"', nodes, names)


def _fork(
    folder: str, nodes: list[PageNode], names: dict[int, str], at: int, text: str, *, depth: int
) -> None:
    """Grow a node up to its first token with an entropy of a nat or more, and give it three children."""
    words = ("--seed", "5", "--temperature", "0.7", "--max-tokens", "16")
    (found,) = traced(folder, *words, prompt=text)
    end = next((r["pos"] for r in found.records if depth and r["pos"] > 2 and r["raw"]["entropy"] > 1), None)
    own = nodes[at]
    grown = "".join(record["text"] for record in found.records[:end])
    begin = text if own.parent is None else own.text
    nodes[at] = PageNode(own.parent, own.token, own.p, begin + grown)
    if end is None:
        return
    for token, name, p in found.records[end]["raw"]["top"][:3]:
        names[token] = name
        nodes.append(PageNode(at, token, p, name))
        _fork(folder, nodes, names, len(nodes) - 1, text + grown + name, depth=depth - 1)


if __name__ == "__main__":
    main()

"""Make the pictures of the README from runs of the bundled model.

    PYTHONPATH=. python scripts/make_pictures.py

Each picture is a self-contained SVG in docs/pictures, for light and for dark pages. tests/test_pages.py
runs the commands again, and fails if the text in a picture differs.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, MONOKAI
from rich.text import Text

from tests.helpers.terminals import begin, until_closed

__all__ = ["FOLDER", "PICTURES", "THEMES", "Picture", "frame", "made", "output", "shown_text"]

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = (sys.executable, "-m", "gencli")
FOLDER = ROOT / "docs" / "pictures"
THEMES = {"light": DEFAULT_TERMINAL_THEME, "dark": MONOKAI}
_WIDTH, _HEIGHT = 108, 24
_FONTS = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'
_FONT_FACE = re.compile(r"\s*@font-face \{\{.*?\}\}\n", re.DOTALL)
_COMMENT = re.compile(r"\s*<!--.*?-->", re.DOTALL)
_FORMAT = _COMMENT.sub("", _FONT_FACE.sub("\n", CONSOLE_SVG_FORMAT)).replace("Fira Code, monospace", _FONTS)
_DRAWING = "\x1b[?25l\r"  # what begins a drawing of the live view
_CODES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|\r")
_ROWS = 4


@dataclass(frozen=True, slots=True)
class Picture:
    """A command as typed. `is_live`: show a frame of the live view instead of the output."""

    name: str
    command: str
    is_live: bool = False


PICTURES = (
    Picture(
        "rows",
        'gencli run -n 4 --seed 7 --top-p 0.9 --max-tokens 24 --quiet "Once upon a time"',
        is_live=True,
    ),
    Picture(
        "chain",
        "gencli run --preset creative --top-p 0.9 --repetition-penalty 1.2 --ban fox --show-chain",
    ),
    Picture(
        "audit",
        """gencli schema audit --grammar-backend xgrammar '{"type": "object", "properties": {
  "age": {"type": "integer", "multipleOf": 3}, "tags": {"type": "array", "uniqueItems": true}}}'""",
    ),
)


def output(picture: Picture, program: Sequence[str] = PROGRAM) -> str:
    """Return the output of the command to a pipe."""
    done = subprocess.run(
        _words(picture, program),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=True,
        env=_environ(),
    )
    return done.stdout


def frame(picture: Picture) -> str:
    """Return the last lines of the live view while all rows run."""
    process, leader = begin(_words(picture), ("stdout",), stderr=subprocess.DEVNULL, env=_environ())
    drawings = until_closed(leader).decode().split(_DRAWING)[1:]
    process.wait()
    plain = (_CODES.sub("", drawing.partition("\x1b[J")[0]).rstrip("\n") for drawing in drawings)
    full = [text for text in plain if text.count("\n") == _ROWS - 1 and "more" not in text.split("\n")[-1]]
    return full[-1] + "\n"


def made(picture: Picture, text: str, theme: str) -> str:
    """Return the SVG with the command and the text below it."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), color_system="truecolor")
    console.print(Text("$ ", style="bold green") + Text(picture.command, style="bold"), no_wrap=True)
    console.print(Text(text.rstrip("\n")), no_wrap=True)
    name = f"gencli-{picture.name}-{theme}"
    return console.export_svg(title="gencli", theme=THEMES[theme], code_format=_FORMAT, unique_id=name)


def shown_text(svg: str) -> str:
    """Return the lines of text in a picture, without the title and trailing spaces."""
    lines: dict[float, list[str]] = {}
    for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        if "clip-path" in node.attrib:
            lines.setdefault(float(node.attrib["y"]), []).append("".join(node.itertext()))
    rows = ("".join(parts).replace("\xa0", " ").rstrip() for _, parts in sorted(lines.items()))
    return "\n".join(rows) + "\n"


def _words(picture: Picture, program: Sequence[str] = PROGRAM) -> list[str]:
    _, *arguments = shlex.split(picture.command)
    return [*program, *arguments]


def _environ() -> dict[str, str]:
    size = {"TERM": "xterm", "COLUMNS": str(_WIDTH), "LINES": str(_HEIGHT), "NO_COLOR": ""}
    own = {key: value for key, value in os.environ.items() if not key.startswith("GENCLI_")}
    return {**own, **size, "PYTHONPATH": str(ROOT)}


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for picture in PICTURES:
        text = frame(picture) if picture.is_live else output(picture)
        for theme in THEMES:
            path = FOLDER / f"{picture.name}-{theme}.svg"
            path.write_text(made(picture, text, theme), encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

"""Page of a tree's navigation: neighbouring nodes, the text with the position of new children, the keys."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from gencli.cli.explain.loom import HELP, Loom
from gencli.cli.explain.tree_view import tree_rows
from gencli.cli.terminal.tables import table
from gencli.text.escapes import escape_controls

__all__ = ["loom_page"]


def loom_page(loom: Loom, pieces: Sequence[str], width: int, height: int) -> list[Text]:
    """Return the lines of a page. `pieces`: the text of each token of the node's whole text."""
    last = Text(loom.message or HELP, "bold" if loom.message else "dim")
    nodes = [*_nodes(loom, max(1, height // 2 - 1))]
    text = _text(loom, pieces, width, max(1, height - len(nodes) - 2))
    return [*nodes, Text(""), *text, last][-height:]


def _nodes(loom: Loom, most: int) -> Iterator[Text]:
    """Yield at most `most` lines of the tree around the node, which is marked by `>`."""
    every = [*loom.tree.walk()]
    here = next(index for index, (_, one) in enumerate(every) if one.id == loom.node)
    near = _around(here, len(every), most)
    lines = table(tree_rows(every[near.start : near.stop])).splitlines()[1:]
    for index, line in zip(near, lines, strict=True):
        is_here = index == here
        yield Text(("> " if is_here else "  ") + line, "bold" if is_here else "")


def _text(loom: Loom, pieces: Sequence[str], width: int, rows: int) -> list[Text]:
    """Return at most `rows` lines of text around the current token, which is shown in brackets."""
    room, place = width * rows, min(loom.place, len(pieces) - 1)
    before = _shown("".join(pieces[:place])[-room:])
    token = _shown(pieces[place]).replace("\n", "\\n")
    after = _shown("".join(pieces[place + 1 :])[:room])
    console = Console(width=width, file=io.StringIO())
    marked = Text(before) + Text(f"[{token}]", "reverse")
    at = len(marked.wrap(console, width)) - 1
    lines = (marked + Text(after)).wrap(console, width)
    return [lines[index] for index in _around(at, len(lines), rows)]


def _shown(text: str) -> str:
    return escape_controls(text).expandtabs(4)


def _around(at: int, count: int, most: int) -> range:
    """Return at most `most` of `count` indices, centred at `at` if possible."""
    start = max(0, min(at - most // 2, count - most))
    return range(start, min(count, start + most))

"""Explained texts as one HTML file: no network, no framework, the data inside it.

The data is {"kind": ..., ...}; texts of token ids are in `names`, {id: text}.

    texts    texts of a trace, one or two of them side by side (in short: explain.page.html_pages)
    compare  {prompt, names, texts: [{title, chain, tokens: [id ...]}, the other],
              rows: [[pos, tv, kl or null, a, b, [stage ...]] ...]}
    sweep    {title, axes: [{name, values: [text ...]}], measures: [{name, unit}],
              cells: [[[index on each axis], [measure or null ...], text, command or ""] ...]}
    tree     {title, names, nodes: [[index of the parent or -1, token or null, p or null, text] ...]}

The page contains the data compressed (zlib, base64). Numbers have six significant digits; null stands for a
number that is not finite.
"""

from __future__ import annotations

from collections.abc import Sequence

from gencli.explain.page.html_pages import (
    Axis,
    Cell,
    CompareRow,
    Measure,
    PageNode,
    Side,
    assemble,
    compare_page,
    sweep_page,
    texts_data,
    tree_page,
)
from gencli.explain.trace_file import TracedText

__all__ = [
    "Axis",
    "Cell",
    "CompareRow",
    "Measure",
    "PageNode",
    "Side",
    "compare_page",
    "page",
    "sweep_page",
    "tree_page",
]


def page(texts: Sequence[TracedText]) -> str:
    """Return the page of traced texts. Raises GenerationError for an invalid record."""
    return assemble("texts", texts_data(texts))

"""A tree of continuations as the branches of a page: each text is split where other texts diverge from it."""

from __future__ import annotations

from gencli.explain.page.kinds import Node, tree_page
from gencli.explain.tree import ROOT, Tree

__all__ = ["branches_page"]

_ENDS = dict[int, int | None]  # the piece that ends at each offset of a text


def branches_page(tree: Tree) -> str:
    """Return the page of a tree."""
    pieces, names = list[Node](), dict[int, str]()
    ends: dict[int, _ENDS] = {}  # by node
    for _, node in tree.walk():
        before = None if node.parent is None else ends[node.parent][node.kept]
        cuts = {min(max(one.kept - node.kept, 0), len(node.text)) for one in tree.children(node.id)}
        found: _ENDS = {} if node.parent is None else dict(ends[node.parent])
        found[node.kept] = before
        start = 0
        for end in sorted({*cuts, len(node.text)}):
            if end > start or (end == len(node.text) and not start):
                is_first = not start
                token = node.ids[0] if is_first and node.ids and node.id != ROOT else None
                pieces.append(Node(before, token, node.p if is_first else None, node.text[start:end]))
                before, start = len(pieces) - 1, end
            found[node.kept + end] = before
        for one in tree.children(node.id):
            found.setdefault(one.kept, before)
        ends[node.id] = found
        if node.ids:
            names[node.ids[0]] = node.token
    return tree_page(str(tree.head["prompt"]), pieces, names)

"""A tree of continuations as text: a table of its nodes, and blocks with whole texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gencli.cli.explain.shown import escaped, probability, quoted
from gencli.cli.terminal.tables import table
from gencli.explain.tree import Node, Tree
from gencli.text.escapes import escape_controls

__all__ = ["block", "tree_rows", "tree_text"]

_MOST = 60  # characters of a text
_DEEPEST = 20  # levels that are indented


def tree_text(tree: Tree) -> str:
    """Return a tree as an indented table: where each text diverges from its parent's, and how it goes on."""
    head, count = tree.head, len(tree.nodes)
    said = f"{head['model']}, seed {head['seed']}, {count} text{'s' if count > 1 else ''}"
    return f"{escape_controls(said)}, prompt {_start(head['prompt'])}\n" + table(tree_rows(tree.walk()))


def tree_rows(nodes: Iterable[tuple[int, Node]]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table, header first. `nodes`: pairs (depth, node) of Tree.walk."""
    yield "node", "at", "token", "p", "", "text", "end"
    for depth, node in nodes:
        yield ("  " * min(depth, _DEEPEST) + str(node.id), *_parted(node), _start(node.text), _end(node))


def block(tree: Tree, node: Node) -> str:
    """Return a block: a line about a node, and its whole text."""
    at, token, p, how = _parted(node)
    text = tree.text(node.id)
    line_end = "" if text.endswith("\n") else "\n"
    return f"== node {node.id}, at {at} {token} {p} {how}, {_end(node)}\n{text}{line_end}"


def _parted(node: Node) -> tuple[str, str, str, str]:
    """Return where a node diverges, its first token, that token's probability, and given or drawn."""
    if node.parent is None:
        return "", "", "", ""
    return str(node.at), quoted(node.token), probability(node.p), "given" if node.given else "drawn"


def _end(node: Node) -> str:
    return f"{escape_controls(node.reason) or 'running'}, {len(node.ids)} tokens"


def _start(text: str) -> str:
    shown = escaped(text[: _MOST + 1])
    return f'"{shown}"' if len(shown) <= _MOST else f'"{shown[: _MOST - 3]}..."'

"""A tree of continuations: texts that diverge from one another at a token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["ROOT", "Node", "Tree"]

ROOT = 0  # id of the text with which the tree began


@dataclass(frozen=True, slots=True)
class Node:
    """A text that equals its parent's up to output position `at`, and differs from there on.

    `ids`: the node's own tokens. `text`: their text, which follows the first `kept` characters of the
    parent's text. `token`: text of the first own token. `p`: that token's probability under the model,
    without guidance and stages. `given`: the first token was chosen by the user, not drawn. `reason`: why the
    text ended. `seed`: of the request that drew it.
    """

    id: int
    parent: int | None
    at: int
    token: str
    text: str
    ids: tuple[int, ...]
    kept: int = 0
    p: float | None = None
    given: bool = False
    reason: str = ""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Tree:
    """Tree of texts: the nodes by id, each after its parent, and the head of the run (see TreeFile).

    `next_id`: above the ids of all nodes, pruned ones included.
    """

    head: Mapping[str, Any]
    nodes: Mapping[int, Node] = field(default_factory=dict)
    next_id: int = ROOT

    def children(self, node: int) -> list[Node]:
        """Return the children of a node, by position and id."""
        found = [one for one in self.nodes.values() if one.parent == node]
        return sorted(found, key=lambda one: (one.at, one.id))

    def path(self, node: int) -> list[Node]:
        """Return the nodes from the root to this one."""
        found, at = list[Node](), self.nodes.get(node)
        while at is not None:
            found.append(at)
            at = None if at.parent is None else self.nodes[at.parent]
        return found[::-1]

    def ids(self, node: int) -> tuple[int, ...]:
        """Return all output tokens of a node's text."""
        found = list[int]()
        for one in self.path(node):
            found[one.at :] = one.ids
        return tuple(found)

    def text(self, node: int) -> str:
        """Return the whole text of a node."""
        found = ""
        for one in self.path(node):
            found = found[: one.kept] + one.text
        return found

    def walk(self, node: int = ROOT, depth: int = 0) -> Iterator[tuple[int, Node]]:
        """Yield `node` and all nodes below it with their depths, each before its children."""
        below: dict[int | None, list[Node]] = {}
        for one in self.nodes.values():
            below.setdefault(one.parent, []).append(one)
        stack = [(depth, self.nodes[node])] if node in self.nodes else []
        while stack:
            depth, one = stack.pop()
            yield depth, one
            children = sorted(below.get(one.id, ()), key=lambda child: (child.at, child.id), reverse=True)
            stack += [(depth + 1, child) for child in children]

    def grown(self, nodes: Iterable[Node]) -> Tree:
        """Return the tree extended by these nodes; their parents have to be in it."""
        new = {one.id: one for one in nodes}
        return replace(self, nodes={**self.nodes, **new}, next_id=max([self.next_id, *(n + 1 for n in new)]))

    def pruned(self, node: int) -> Tree:
        """Return the tree without a node and all nodes below it."""
        gone = {one.id for _, one in self.walk(node)}
        return replace(self, nodes={key: one for key, one in self.nodes.items() if key not in gone})

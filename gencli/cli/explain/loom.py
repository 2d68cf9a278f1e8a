"""Navigation in a tree of continuations: position, and effect of each key. No terminal, no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gencli.explain.tree import ROOT, Node, Tree

__all__ = ["HELP", "Action", "Loom"]

Action = Literal["", "grow", "prune", "export", "leave"]
HELP = "arrows parent, child, siblings  [ ] token  n new  x prune  e export  q leave"


@dataclass(frozen=True, slots=True)
class Loom:
    """A node of a tree, and the index of the token at which new children begin.

    `message`: about the last key. `is_asked`: the next key confirms pruning of the node.
    """

    tree: Tree
    node: int = ROOT
    place: int = 0
    message: str = ""
    is_asked: bool = False

    @property
    def here(self) -> Node:
        """The current node."""
        return self.tree.nodes[self.node]

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the node's whole text."""
        return self.here.at + len(self.here.ids)

    def pressed(self, key: str) -> tuple[Loom, Action]:
        """Return the state after a key, and the action that the caller has to perform."""
        calm = replace(self, message="", is_asked=False)
        if self.is_asked:
            return (calm, "prune") if key == "y" else (replace(calm, message="Nothing is pruned."), "")
        if key == "x":
            return calm._ask(), ""
        if key in _ACTIONS:
            return calm, _ACTIONS[key]
        return (_MOVES[key](calm) if key in _MOVES else replace(calm, message=HELP)), ""

    def at(self, node: Node) -> Loom:
        """Return the state at another node, at the token where its text diverges from its parent's."""
        return replace(self, node=node.id, place=node.at)

    def grown(self, nodes: Sequence[Node]) -> Loom:
        """Return the state with new children, at the first of them."""
        found = replace(self, tree=self.tree.grown(nodes))
        return found.at(nodes[0]) if nodes else found

    def pruned(self) -> Loom:
        """Return the state without the node, at its parent."""
        parent = self.tree.nodes[self.here.parent or ROOT]
        return replace(self, tree=self.tree.pruned(self.node), node=parent.id, place=self.here.at)

    def _ask(self) -> Loom:
        if self.node == ROOT:
            return replace(self, message="The text that the tree began with stays.")
        below = sum(1 for _ in self.tree.walk(self.node)) - 1
        return replace(self, message=f"Prune node {self.node} and {below} below it? y or n", is_asked=True)

    def _parent(self) -> Loom:
        if self.here.parent is None:
            return replace(self, message="This is the first text.")
        return replace(self, node=self.here.parent, place=self.here.at)

    def _child(self) -> Loom:
        """Go to the first child at or after the current token, otherwise to the first child."""
        children = self.tree.children(self.node)
        if not children:
            return replace(self, message="No children; n lets some grow.")
        return self.at(next((one for one in children if one.at >= self.place), children[0]))

    def _sibling(self, step: int) -> Loom:
        siblings = [] if self.here.parent is None else self.tree.children(self.here.parent)
        order = [one.id for one in siblings]
        target = order.index(self.node) + step if order else -1
        if not 0 <= target < len(order):
            return replace(self, message="No more siblings there.")
        return self.at(siblings[target])

    def _moved(self, place: int) -> Loom:
        return replace(self, place=max(0, min(place, self.num_tokens - 1)))


_ACTIONS: Mapping[str, Action] = {"n": "grow", "e": "export", "q": "leave", "escape": "leave"}
_MOVES: Mapping[str, Callable[[Loom], Loom]] = {
    "left": Loom._parent,
    "right": Loom._child,
    "enter": Loom._child,
    "up": lambda loom: loom._sibling(-1),
    "down": lambda loom: loom._sibling(1),
    "[": lambda loom: loom._moved(loom.place - 1),
    "]": lambda loom: loom._moved(loom.place + 1),
    "home": lambda loom: loom._moved(loom.here.at),
    "end": lambda loom: loom._moved(loom.num_tokens),
}

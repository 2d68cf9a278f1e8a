"""Trees of draft tokens while they grow, level by level, from what a model finds likely behind each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from gencli.core.tree_shapes import AUTO_TREE, DynamicTree, StaticTree, TreeShape
from gencli.speculative.drafter import DraftAsk, DraftTree, run_or_tree

# Tokens that may follow a node with their log-probabilities, the one that the request would draw first.
Ranking = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class TreeLevel:
    """The `tokens` of nodes that are fed next, and the parents of all nodes fed so far, these included.

    Parents are places among the fed nodes; -1 is the newest token. The nodes of a level have theirs in the
    level before.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]


class GrowingTree:
    """A tree that gets one more level with each ranking of its frontier.

    `frontier` are the nodes whose children come next, in their order; -1 is the newest token of the text. It
    is empty as soon as the tree is whole. A node of a dynamic tree that is not among the most likely ones so
    far is not expanded: its descendants would not be either.
    """

    def __init__(self, shape: StaticTree | DynamicTree, *, most: int, nodes: int) -> None:
        """`most` and `nodes` limit the depth and the number of nodes of the shape."""
        self.frontier = [-1]
        self._shape, self._most, self._max_nodes = shape, min(most, shape.depth), min(nodes, shape.nodes)
        self._tokens, self._parents, self._depth = list[int](), list[int](), 0
        self._scores, self._ranks = list[float](), list[tuple[int, ...]]()  # of paths
        self._fed = dict[int, int]()  # places of the fed nodes
        self._fed_parents = list[int]()  # places of their parents

    @property
    def width(self) -> int:
        """The most children of a node of the frontier."""
        return max(map(self._num_children, self.frontier))

    @property
    def most_fed(self) -> int:
        """The most nodes that get children, but for the newest token."""
        shape = self._shape
        return shape.width * (self._most - 1) if isinstance(shape, DynamicTree) else len(shape.widths) - 1

    def grow(self, rankings: Iterable[Ranking], goes_on: Callable[[int], bool]) -> None:
        """Add the children of the frontier, and move it on to those whose tokens go on."""
        first = len(self._tokens)
        for node, ranking in zip(self.frontier, rankings, strict=True):
            score, ranks = (self._scores[node], self._ranks[node]) if node >= 0 else (0.0, ())
            for rank, (token, more) in enumerate(ranking[: self._num_children(node)]):
                self._tokens.append(token)
                self._parents.append(node)
                self._scores.append(score + more)
                self._ranks.append((*ranks, rank))
        self._depth += 1
        nodes = [node for node in self._kept() if node >= first and goes_on(self._tokens[node])]
        if isinstance(self._shape, DynamicTree):
            nodes = sorted(self._best(nodes, self._shape.width))
        has_next = self._depth < self._most
        self.frontier = [node for node in nodes if has_next and self._num_children(node)]

    def path(self, node: int) -> tuple[int, ...]:
        """Return the tokens from the first level to a node; () for -1."""
        tokens = []
        while node >= 0:
            tokens.append(self._tokens[node])
            node = self._parents[node]
        return tuple(tokens[::-1])

    def level(self) -> TreeLevel:
        """Return the frontier, which is fed now."""
        for node in self.frontier:
            self._fed_parents.append(self._fed.get(self._parents[node], -1))
            self._fed[node] = len(self._fed)
        return TreeLevel(tuple(self._tokens[node] for node in self.frontier), tuple(self._fed_parents))

    def drafts(self) -> DraftTree | tuple[int, ...]:
        """Return the tree; as a run of tokens if nothing branches."""
        kept = self._kept()
        places = {-1: -1} | {node: place for place, node in enumerate(kept)}
        tokens = tuple(self._tokens[node] for node in kept)
        return run_or_tree(tokens, tuple(places[self._parents[node]] for node in kept))

    def _num_children(self, node: int) -> int:
        if isinstance(self._shape, DynamicTree):
            return self._shape.width
        return self._shape.widths.get(self._ranks[node] if node >= 0 else (), 0)

    def _kept(self) -> list[int]:
        """Return the nodes of the tree, the likeliest first; the parent of each is among those before it."""
        nodes = range(len(self._tokens))
        if isinstance(self._shape, DynamicTree):
            return self._best(nodes, self._max_nodes)
        return [*nodes[: self._max_nodes]]

    def _best(self, nodes: Iterable[int], count: int) -> list[int]:
        return nsmallest(count, nodes, key=lambda node: (-self._scores[node], node))


def growing_tree(shape: TreeShape | None, ask: DraftAsk, most: int) -> GrowingTree:
    """Return the tree to grow for an ask, of a depth of at most `most`; without `ask.nodes` a chain."""
    if not ask.nodes or shape is None:
        return GrowingTree(DynamicTree(1, most, most), most=most, nodes=most)
    if shape == AUTO_TREE:
        shape = DynamicTree(-(-ask.nodes // most), most, ask.nodes)
    return GrowingTree(shape, most=most, nodes=ask.nodes)

"""Trees of draft tokens while they grow, level by level, from what a model finds likely behind each node."""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class GrowingTree(ABC):
    """A tree that gets one more level with each ranking of its frontier.

    `frontier` are the nodes whose children come next, in their order; -1 is the newest token of the text. It
    is empty as soon as the tree is whole.
    """

    def __init__(self, shape: StaticTree | DynamicTree, *, most: int, nodes: int) -> None:
        """`most` and `nodes` limit the depth and the number of nodes of the shape."""
        self.frontier = [-1]
        self._most, self._max_nodes = min(most, shape.depth), min(nodes, shape.nodes)
        self._tokens, self._parents, self._depth = list[int](), list[int](), 0
        self._fed, self._fed_parents = (
            dict[int, int](),
            list[int](),
        )  # places of fed nodes, and of their parents

    @property
    @abstractmethod
    def width(self) -> int:
        """The most children of a node of the frontier."""

    @property
    @abstractmethod
    def most_fed(self) -> int:
        """The most nodes that get children, but for the newest token."""

    @abstractmethod
    def _add(self, parent: int, ranking: Ranking) -> None:
        """Add the children of a node."""

    @abstractmethod
    def _to_expand(self, level: Sequence[int]) -> Iterable[int]:
        """Return the nodes among these, of the deepest level, that get children."""

    @abstractmethod
    def _kept(self) -> Sequence[int]:
        """Return the nodes of the tree; the parent of each is among those before it."""

    def grow(self, rankings: Iterable[Ranking], goes_on: Callable[[int], bool]) -> None:
        """Add the children of the frontier, and move it on to those whose tokens go on."""
        first = len(self._tokens)
        for node, ranking in zip(self.frontier, rankings, strict=True):
            self._add(node, ranking)
        self._depth += 1
        level = [node for node in range(first, len(self._tokens)) if goes_on(self._tokens[node])]
        self.frontier = sorted(self._to_expand(level)) if self._depth < self._most else []

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


class StaticGrowth(GrowingTree):
    """Grows to a fixed shape: each node has a path of ranks."""

    def __init__(self, shape: StaticTree, *, most: int, nodes: int) -> None:
        super().__init__(shape, most=most, nodes=nodes)
        self._widths, self._paths = shape.widths, {-1: ()} | dict[int, tuple[int, ...]]()

    @property
    def width(self) -> int:
        return max(self._num_children(node) for node in self.frontier)

    @property
    def most_fed(self) -> int:
        return min(self._max_nodes, len(self._widths) - 1)

    def _num_children(self, node: int) -> int:
        return self._widths.get(self._paths[node], 0)

    def _add(self, parent: int, ranking: Ranking) -> None:
        room = min(self._num_children(parent), self._max_nodes - len(self._tokens))
        for rank, (token, _) in enumerate(ranking[:room]):
            self._paths[len(self._tokens)] = (*self._paths[parent], rank)
            self._tokens.append(token)
            self._parents.append(parent)

    def _to_expand(self, level: Sequence[int]) -> Iterable[int]:
        is_full = len(self._tokens) >= self._max_nodes
        return () if is_full else [node for node in level if self._num_children(node)]

    def _kept(self) -> Sequence[int]:
        return range(len(self._tokens))


class DynamicGrowth(GrowingTree):
    """Grows by the log-probabilities of paths (see DynamicTree).

    A node that is not among the most likely ones so far is not expanded: its descendants would not be either.
    """

    def __init__(self, shape: DynamicTree, *, most: int, nodes: int) -> None:
        super().__init__(shape, most=most, nodes=nodes)
        self._width, self._scores = shape.width, list[float]()

    @property
    def width(self) -> int:
        return self._width

    @property
    def most_fed(self) -> int:
        return self._width * (self._most - 1)

    def _add(self, parent: int, ranking: Ranking) -> None:
        score = self._scores[parent] if parent >= 0 else 0.0
        for token, more in ranking[: self._width]:
            self._tokens.append(token)
            self._parents.append(parent)
            self._scores.append(score + more)

    def _to_expand(self, level: Sequence[int]) -> Iterable[int]:
        kept = set(self._kept())
        return self._best([node for node in level if node in kept], self._width)

    def _kept(self) -> Sequence[int]:
        return sorted(self._best(range(len(self._tokens)), self._max_nodes))

    def _best(self, nodes: Iterable[int], count: int) -> list[int]:
        return nsmallest(count, nodes, key=lambda node: (-self._scores[node], node))


def growing_tree(shape: TreeShape | None, ask: DraftAsk, most: int) -> GrowingTree:
    """Return the tree to grow for an ask, of a depth of at most `most`; without `ask.nodes` a chain."""
    if not ask.nodes or shape is None:
        return DynamicGrowth(DynamicTree(1, most, most), most=most, nodes=most)
    if shape == AUTO_TREE:
        shape = DynamicTree(-(-ask.nodes // most), most, ask.nodes)
    if isinstance(shape, StaticTree):
        return StaticGrowth(shape, most=most, nodes=ask.nodes)
    return DynamicGrowth(shape, most=most, nodes=ask.nodes)

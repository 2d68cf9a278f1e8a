"""Other kinds of pages: two chains on one text, a grid of runs, the branches of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from gencli.errors import GenerationError
from gencli.explain.page.assemble import assemble, short

__all__ = [
    "Axis",
    "Cell",
    "CompareRow",
    "Measure",
    "Node",
    "Side",
    "compare_page",
    "sweep_page",
    "tree_page",
]


@dataclass(frozen=True, slots=True)
class Side:
    """One of two chains: a title, the chain as text, and the ids that it drew after the prompt."""

    title: str
    chain: str
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class CompareRow:
    """A position of the first text, `pos` from 0, and the choices of both chains there.

    `tv`: total variation, 0 to 1. `kl`: KL divergence in bits, infinite if one chain masks an id that the
    other can draw. `a`, `b`: ids that the same draw gives. `decided`: the stages that cause a difference.
    """

    pos: int
    tv: float
    kl: float
    a: int | None
    b: int | None
    decided: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """An option that a sweep varies, and its values as text, in order."""

    name: str
    values: Sequence[str]


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of each cell; `unit` may be empty."""

    name: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A run of a sweep: its index on each axis, its measures in order, its text, and its command."""

    at: Sequence[int]
    measures: Sequence[float | None]
    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A piece of a text: the index of the node that it continues, which comes before it, or None for a root.

    `text`: the text that the node adds, including the first token, in which it differs from its siblings.
    `p`: probability of that token. The texts from the root to a node form a branch.
    """

    parent: int | None
    token: int | None
    p: float | None
    text: str


def compare_page(
    prompt: str, sides: tuple[Side, Side], rows: Sequence[CompareRow], names: Mapping[int, str]
) -> str:
    """Return the page of two chains; `names` has the texts of all ids."""
    if any(one.pos >= two.pos for one, two in pairwise(rows)):
        raise GenerationError("The places of a comparison are not in ascending order.")
    texts = [{"title": side.title, "chain": side.chain, "tokens": list(side.tokens)} for side in sides]
    written = [[row.pos, short(row.tv), short(row.kl), row.a, row.b, list(row.decided)] for row in rows]
    return assemble("compare", {"prompt": prompt, "names": dict(names), "texts": texts, "rows": written})


def sweep_page(title: str, axes: Sequence[Axis], measures: Sequence[Measure], cells: Sequence[Cell]) -> str:
    """Return the page of a grid; the last axis gives the columns. GenerationError for a cell outside it."""
    if not axes or not measures or not prod(len(axis.values) for axis in axes):
        raise GenerationError("A sweep has at least one axis with values and one measure.")
    sizes = [len(axis.values) for axis in axes]
    for cell in cells:
        is_inside = len(cell.at) == len(sizes) and all(
            0 <= i < n for i, n in zip(cell.at, sizes, strict=True)
        )
        if not is_inside or len(cell.measures) != len(measures):
            raise GenerationError(f"The cell {list(cell.at)} does not fit the sweep's axes and measures.")
    data: dict[str, Any] = {
        "title": title,
        "axes": [{"name": axis.name, "values": list(axis.values)} for axis in axes],
        "measures": [{"name": measure.name, "unit": measure.unit} for measure in measures],
        "cells": [[list(one.at), [*map(short, one.measures)], one.text, one.command] for one in cells],
    }
    return assemble("sweep", data)


def tree_page(title: str, nodes: Sequence[Node], names: Mapping[int, str]) -> str:
    """Return the page of branches. Raises GenerationError for a node that precedes its parent."""
    for index, node in enumerate(nodes):
        if node.parent is not None and not 0 <= node.parent < index:
            raise GenerationError(f"The parent of node {index} is {node.parent}, which is not before it.")
    written = [
        [-1 if node.parent is None else node.parent, node.token, short(node.p), node.text] for node in nodes
    ]
    return assemble("tree", {"title": title, "names": dict(names), "nodes": written})

"""Several texts of one prompt: the tree of continuations, the grid of a sweep (which options vary, and
their values in each cell), and measures of drawn texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from itertools import product
from math import prod
from typing import Any

from gencli.config.option_names import meant_option
from gencli.config.run_options import OPTIONS
from gencli.core.events import Error, Finish, Token
from gencli.errors import UsageError
from gencli.results.run_results import LATE
from processors.row_view import RowView

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
        children = [child for child in self.nodes.values() if child.parent == node]
        return sorted(children, key=lambda child: (child.at, child.id))

    def path(self, node: int) -> list[Node]:
        """Return the nodes from the root to this one."""
        path, at = list[Node](), self.nodes.get(node)
        while at is not None:
            path.append(at)
            at = None if at.parent is None else self.nodes[at.parent]
        return path[::-1]

    def ids(self, node: int) -> tuple[int, ...]:
        """Return all output tokens of a node's text."""
        ids = list[int]()
        for step in self.path(node):
            ids[step.at :] = step.ids
        return tuple(ids)

    def text(self, node: int) -> str:
        text = ""
        for step in self.path(node):
            text = text[: step.kept] + step.text
        return text

    def walk(self, node: int = ROOT) -> Iterator[tuple[int, Node]]:
        """Yield `node` and all nodes below it with their depths, each before its children."""
        below: dict[int | None, list[Node]] = {}
        for child in self.nodes.values():
            below.setdefault(child.parent, []).append(child)
        stack = [(0, self.nodes[node])] if node in self.nodes else []
        while stack:
            depth, top = stack.pop()
            yield depth, top
            children = sorted(below.get(top.id, ()), key=lambda child: (child.at, child.id), reverse=True)
            stack += [(depth + 1, child) for child in children]

    def grown(self, nodes: Iterable[Node]) -> Tree:
        """Return the tree extended by these nodes; their parents have to be in it."""
        new = {node.id: node for node in nodes}
        return replace(self, nodes={**self.nodes, **new}, next_id=max([self.next_id, *(n + 1 for n in new)]))

    def pruned(self, node: int) -> Tree:
        """Return the tree without a node and all nodes below it."""
        gone = {below.id for _, below in self.walk(node)}
        return replace(self, nodes={key: kept for key, kept in self.nodes.items() if key not in gone})


MOST_CELLS = 1000
_LARGEST = Decimal(10) ** 15  # limit of a range's bounds
_SECTIONS = ("Chain", "Guidance", "Draw", "Limits and stops")
# Options that a sweep may vary: numbers and names in the sections that affect a text.
VARIED = {entry.key: entry for entry in OPTIONS if entry.section in _SECTIONS and not entry.many and (
    entry.type in (int, float) or entry.choices)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """An option by key, and its values as texts, in order."""

    key: str
    values: tuple[str, ...]


def read_axis(text: str) -> SweepAxis:
    """Return the axis of `key=a,b,c` or `key=from:to:step`, both ends included, steps exact in decimals.

    Raises UsageError for an unknown option, an invalid value, or a duplicate.
    """
    name, sign, listed = text.partition("=")
    key = name.strip().lstrip("-").replace("-", "_")
    if not sign or not listed.strip():
        hint = "Write temperature=0.2:1.4:0.2 or min_p=0,0.1."
        raise UsageError(f"{text[:60]!r} varies nothing.", hint=hint)
    if key not in VARIED:
        near = meant_option(key, {name: name for name in VARIED})
        raise UsageError(f"A sweep cannot vary {key[:60]!r}. {near}".strip())
    values = _range(listed) if listed.count(":") == 2 else [value.strip() for value in listed.split(",")]
    for value in values:
        VARIED[key].value(value, f"{key}={value[:40]}")
    if len(set(values)) < len(values):
        raise UsageError(f"{text[:60]!r} has a value twice.", hint="Leave one of them out.")
    return SweepAxis(key, tuple(values))


def _range(text: str) -> list[str]:
    try:
        first, last, step = (Decimal(part.strip()) for part in text.split(":"))
    except InvalidOperation:
        raise UsageError(f"{text[:60]!r} is no range of numbers.", hint="Write from:to:step.") from None
    numbers = first, last, step
    if len(text) > 90 or not all(n.is_finite() and n.copy_abs() < _LARGEST for n in numbers):
        raise UsageError(f"{text[:60]!r} has a number that is too large or too long.")
    if not step or (last - first) / step < 0:
        raise UsageError(f"The step {step} does not lead from {first} to {last}.")
    count = int((last - first) / step) + 1
    if count > MOST_CELLS:
        raise UsageError(f"{text[:60]!r} has {count} values, at most {MOST_CELLS} are tried.")
    written = (f"{first + number * step:f}" for number in range(count))
    return [(value.rstrip("0").rstrip(".") if "." in value else value) or "0" for value in written]


def cells(axes: Sequence[SweepAxis]) -> list[Mapping[str, str]]:
    """Return the values of each cell, the last axis changing fastest. UsageError if there are too many."""
    keys = [axis.key for axis in axes]
    if len(set(keys)) < len(keys):
        raise UsageError("An option is varied twice.", hint="Put its values into one list.")
    if (count := prod(len(axis.values) for axis in axes)) > MOST_CELLS:
        raise UsageError(f"The grid has {count} cells, at most {MOST_CELLS} are tried.", hint="Vary less.")
    return [dict(zip(keys, values, strict=True)) for values in product(*(axis.values for axis in axes))]


# The measures of a text, with their units and meanings.
MEASURES: dict[str, str] = {
    "tokens": "length of the text",
    "entropy": "of the distribution that was drawn from, in nats, mean over tokens",
    "alive": "tokens left to draw from, mean",
    "decided": "share of tokens that a stage decided",
    "surprise": "-log2 p under the model, bits, mean",
    "logprob": "log-probability of the text under the model, nats, sum",
    "distinct_1": "different tokens, as a share of all",
    "distinct_2": "different pairs of tokens, as a share of all",
    "distinct_3": "different runs of three tokens, as a share of all",
    "repetition": "1 - different runs of four tokens, as a share of all (Welleck et al. 2020, seq-rep-4)",
    "valid": "share of texts that are valid by the schema",
}


def distinct(ids: Sequence[int], size: int) -> float | None:
    """Return (number of different n-grams of `size` tokens) / (number of n-grams); None for a shorter text.

    Li et al. 2016, A Diversity-Promoting Objective Function for Neural Conversation Models (distinct-n).
    """
    count = len(ids) - size + 1
    return len({tuple(ids[at : at + size]) for at in range(count)}) / count if count > 0 else None


def repetition(ids: Sequence[int]) -> float | None:
    """Return seq-rep-4 of Welleck et al. 2020: 1 - distinct-4; None for fewer than 4 tokens."""
    share = distinct(ids, 4)
    return None if share is None else 1 - share


@dataclass(frozen=True, slots=True)
class MeasuredText:
    """One text of a cell: why it ended, and its measures by name; None if a measure is undefined."""

    prompt: int
    sample: int
    text: str
    reason: str
    measures: dict[str, float | None]
    error: str = ""


@dataclass(slots=True)
class TextMeter:
    """Accumulates the explained tokens of one sample until its end."""

    prompt: int
    sample: int
    ids: list[int] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)
    bits: list[float] = field(default_factory=list)
    decided: int = 0

    def add(self, event: Token) -> None:
        self.ids.extend(event.ids)
        for view in event.views:
            self.see(view)

    def see(self, view: RowView) -> None:
        self.entropies.append(view.final.entropy)
        self.alive.append(view.final.alive)
        self.bits.append(view.surprise)
        self.decided += bool(view.decided_by)

    def measures(self) -> dict[str, float | None]:
        """Return the measures so far, without `valid`."""
        count = len(self.bits)
        return {
            "tokens": len(self.ids),
            "entropy": mean_of(self.entropies),
            "alive": mean_of(self.alive),
            "decided": self.decided / count if count else None,
            "surprise": mean_of(self.bits),
            "logprob": -math.fsum(self.bits) * math.log(2) if count else None,
            **{f"distinct_{size}": distinct(self.ids, size) for size in (1, 2, 3)},
            "repetition": repetition(self.ids),
            "valid": None,
        }

    def end(self, event: Finish | Error) -> MeasuredText:
        """Return the finished sample."""
        if isinstance(event, Error):
            return MeasuredText(self.prompt, self.sample, event.text, "error", self.measures(), event.message)
        valid = None if event.verdict is None else float(event.verdict.is_valid)
        error = LATE if event.is_late else ""
        measures = {**self.measures(), "valid": valid}
        return MeasuredText(self.prompt, self.sample, event.text, event.reason, measures, error)


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there are none."""
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None

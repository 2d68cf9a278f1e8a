"""Shapes of trees of draft tokens, and how they are written: a list of paths, WIDTHxDEPTHxNODES, auto.

A path is that of Medusa's and EAGLE's published choices: the rank of each token, 0 for the most likely, among
those that could follow. [[0], [1], [0, 0]] is a tree of the two most likely tokens and of the most likely one
behind the first of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from gencli.errors import UsageError
from gencli.files import read_file
from gencli.helpers import shortened
from gencli.json_text import DocumentError, JsonLimits, parse_json

MAX_NODES = 64  # draft tokens of a tree
NO_TREE: Final = "off"
AUTO_TREE: Final = "auto"
_MAX_BYTES = 1 << 16  # of a file
_MAX_EXPANDED = 256  # tokens of a tree that get continuations
_LIMITS = JsonLimits(max_depth=4, max_digits=6, has_decimals=False)
_SIZES = re.compile(r"(\d{1,4})x(\d{1,4})x(\d{1,4})", re.ASCII)
_FORMS = 'It is off, auto, WIDTHxDEPTHxNODES as in 4x5x16, paths as in "[[0],[1],[0,0]]", or a file of paths.'


@dataclass(frozen=True)
class StaticTree:
    """A tree of the same shape in every step: the `paths` of its nodes, the shorter ones first.

    With a path it has the path to the parent and the paths of siblings with smaller ranks.
    """

    paths: tuple[tuple[int, ...], ...]

    @cached_property
    def widths(self) -> dict[tuple[int, ...], int]:
        """The number of children of each node that has any, by its path; () is the newest token."""
        widths: dict[tuple[int, ...], int] = {}
        for path in self.paths:
            widths[path[:-1]] = widths.get(path[:-1], 0) + 1
        return widths

    @property
    def depth(self) -> int:
        return len(self.paths[-1])

    @property
    def nodes(self) -> int:
        return len(self.paths)

    def __str__(self) -> str:
        return json.dumps(self.paths, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class DynamicTree:
    """A tree that follows the drafter's probabilities, as in EAGLE-2 (arXiv 2406.16858).

    At each of `depth` levels the `width` most likely nodes get `width` children each; of all nodes the
    `nodes` most likely are kept. A node is as likely as all tokens on its path together.
    """

    width: int
    depth: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.width}x{self.depth}x{self.nodes}"


TreeShape = StaticTree | DynamicTree | Literal["auto"]


def num_straight(parents: Sequence[int]) -> int:
    """Return how many nodes of a tree are before its first branch: each follows the node before it."""
    return next((node for node, parent in enumerate(parents) if parent != node - 1), len(parents))


def is_tree_file(text: str) -> bool:
    """Return whether a text is the name of a file, and no shape."""
    stripped = text.strip()
    is_shape = stripped in ("", NO_TREE, AUTO_TREE) or _SIZES.fullmatch(stripped) or stripped[:1] == "["
    return not is_shape


def read_shape_text(text: str | Sequence[Sequence[int]]) -> str:
    """Return the checked text of a shape or of paths; the name of a file as it is. Raises UsageError."""
    if not isinstance(text, str):
        return str(_static(text, "The draft tree"))
    return text if is_tree_file(text) else str(read_tree_shape(text) or NO_TREE)


def read_tree_shape(text: str) -> TreeShape | None:
    """Return the shape of a text or of the file that it names; None for off. Raises UsageError."""
    stripped = text.strip()
    if stripped == NO_TREE:
        return None
    if stripped == AUTO_TREE:
        return AUTO_TREE
    if sizes := _SIZES.fullmatch(stripped):
        width, depth, nodes = map(int, sizes.groups())
        for name, size in (("width", width), ("depth", depth), ("number of nodes", nodes)):
            if not 1 <= size <= MAX_NODES:
                raise UsageError(f"The {name} of the draft tree is {size}, but has to be 1 to {MAX_NODES}.")
        if width * depth > _MAX_EXPANDED:
            fault = f"A draft tree of {width}x{depth} expands {width * depth} tokens"
            raise UsageError(f"{fault}, at most {_MAX_EXPANDED} are allowed.")
        return DynamicTree(width, depth, nodes)
    if not stripped:
        raise UsageError("The draft tree is empty.", hint=_FORMS)
    if not is_tree_file(stripped):
        return _static(_paths(stripped, "The draft tree"), "The draft tree")
    path = Path(stripped).expanduser()
    name = f"The draft tree {shortened(stripped, 60)}"
    try:
        content = read_file(path, _MAX_BYTES, pipes=True).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"{name} cannot be read: {why}.", hint=_FORMS) from None
    return _static(_paths(content, name), name)


def _paths(text: str, name: str) -> Any:
    try:
        return parse_json(text, _LIMITS)
    except DocumentError as error:
        raise UsageError(f"{name} is no JSON: {error.about(text)}", hint=_FORMS) from None


def _static(value: Any, name: str) -> StaticTree:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise UsageError(f"{name} is no list of paths.", hint=_FORMS)
    if len(value) > MAX_NODES:
        raise UsageError(f"{name} has {len(value)} nodes, at most {MAX_NODES} are allowed.")
    for path in value:
        is_path = isinstance(path, Sequence) and not isinstance(path, str) and bool(path)
        if not is_path or not all(type(rank) is int and 0 <= rank < MAX_NODES for rank in path):
            shown = shortened(json.dumps(path, default=str), 40)
            raise UsageError(f"{name}: {shown} is no path of ranks from 0 to {MAX_NODES - 1}.", hint=_FORMS)
    paths = sorted(map(tuple, value), key=lambda path: (len(path), path))
    known = set[tuple[int, ...]]()
    for path in paths:
        if path in known:
            raise UsageError(f"{name} has {[*path]} twice.", hint="Leave one of them out.")
        *parent, rank = path
        for needed in ([*parent], [*parent, rank - 1]) if rank else ([*parent],):
            if needed and tuple(needed) not in known:
                raise UsageError(f"{name} has {[*path]}, but not {needed}.", hint=f"Add {needed}.")
        known.add(path)
    return StaticTree(tuple(paths))

"""The file of a tree: JSON lines that are only appended (docs/tree.schema.json)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gencli.config.layers import CODE, Recipe
from gencli.errors import GenerationError, UsageError
from gencli.explain.text_sets import ROOT, Node, Tree
from gencli.explain.trace_file import objects, typed
from gencli.files import NO_LINK, read_file

VERSION = 1  # version of the lines of a tree
_HEAD = ("run", "sample", "model", "prompt", "chain", "draw", "seed", "preset", "code", "files")
_MAX_BYTES = 64 << 20  # of a file
_END_OF_IDS, _END_OF_SEEDS = 2**31, 2**64
_BINARY = getattr(os, "O_BINARY", 0)


class TreeFile:
    """The tree of a file; additions are appended to the file. The writer holds the file's lock.

    Raises UsageError for a file that cannot be read or written, GenerationError for one without a valid tree.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree, self._size = _read(path)

    @classmethod
    def create(cls, path: Path, tree: Tree) -> TreeFile:
        """Write a new file with the head and the nodes of a tree."""
        lines = [_line("tree", tree.head), *(node_line(node) for node in tree.nodes.values())]
        _append(path, "".join(lines), os.O_EXCL)
        return cls(path)

    def add(self, nodes: Iterable[Node]) -> None:
        """Append nodes; their parents have to be in the tree."""
        new = list(nodes)
        self._append("".join(map(node_line, new)))
        self.tree = self.tree.grown(new)

    def prune(self, node: int) -> None:
        """Append the removal of a node and all nodes below it."""
        self._append(_line("prune", {"id": node}))
        self.tree = self.tree.pruned(node)

    def _append(self, text: str) -> None:
        with suppress(OSError):
            os.truncate(self.path, self._size)  # the incomplete last line of a killed process
        self._size += _append(self.path, text)


def read_tree(path: Path) -> Tree:
    """Return the tree of a file. UsageError if it cannot be read, GenerationError without a valid tree."""
    return _read(path)[0]


def node_line(node: Node) -> str:
    """Return the line of a node."""
    return _line("node", asdict(node))


def _line(kind: str, values: Mapping[str, Any]) -> str:
    return json.dumps({"v": VERSION, "kind": kind, **values}, ensure_ascii=False) + "\n"


def checked_head(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run's data from a trace's line of kind `text`, or from a tree's first line.

    Raises GenerationError for a missing field, or one of another type.
    """
    try:
        types: dict[str, Any] = dict.fromkeys(("run", "model", "prompt", "draw", "preset"), str)
        typed(line, **types, sample=int, seed=int, chain=list, code=dict, files=dict)
        for key, value in line["code"].items():
            names = value if isinstance(value, list) else [value]
            if key not in CODE or not (value is True or all(isinstance(name, str) for name in names)):
                raise TypeError(f"code has {key[:40]!r}")
        for key, file in line["files"].items():
            if not (isinstance(file, dict) and isinstance(file.get("path"), str)):
                raise TypeError(f"files has {key[:40]!r}")
            if file.get("sha256") is not None:
                typed(file, sha256=str)
    except (KeyError, TypeError) as error:
        raise GenerationError(f"The description of the run is incomplete: {error}.") from None
    return {key: line[key] for key in _HEAD}


def recipe_of(head: Mapping[str, Any]) -> Recipe:
    """Return the recipe that reproduces the job of a checked head's run."""
    return Recipe(head["preset"], head["code"], head["files"])


def _append(path: Path, text: str, flags: int = 0) -> int:
    """Append text to a file and return its number of bytes."""
    data = text.encode()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_LINK | _BINARY | flags, 0o666)
        try:
            if os.write(handle, data) != len(data):
                raise GenerationError(f"{path} is written only in part: the disk may be full.")
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise UsageError(f"The tree {path} cannot be written: {error.strerror or error}.") from None
    return len(data)


def _read(path: Path) -> tuple[Tree, int]:
    """Return the tree, and the size in bytes of its complete lines."""
    try:
        data = read_file(path, _MAX_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        text = whole.decode("utf-8")
    except OSError as error:
        raise UsageError(f"The tree {str(path)!r} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"The tree {str(path)!r} is not UTF-8.") from None
    return _tree(text.split("\n")), len(whole)


def _tree(lines: Iterable[str]) -> Tree:
    head: dict[str, Any] | None = None
    nodes: dict[int, Node] = {}
    sizes: dict[int, tuple[int, int]] = {}  # tokens and characters of the whole text of each node
    pruned = set[int]()
    for number, line in objects(lines):
        if line.get("v") != VERSION or line.get("kind") not in ("tree", "node", "prune"):
            raise GenerationError(f"Line {number} is no line of a tree of version {VERSION}.")
        if (head is None) != (line["kind"] == "tree"):
            raise GenerationError(f"Line {number}: a tree has one head, which is its first line.")
        try:
            if head is None:
                head = checked_head(line)
            elif line["kind"] == "node":
                _add_node(line, nodes, sizes)
            elif (node := _whole(line, "id", _END_OF_IDS)) == ROOT or node not in nodes:
                raise ValueError(f"node {node} cannot be pruned")
            else:
                pruned.add(node)
        except (KeyError, TypeError, ValueError) as error:
            raise GenerationError(f"Line {number} is no {line['kind']} of a tree: {error}.") from None
    if head is None or ROOT not in nodes:
        raise GenerationError("The tree has no node 0, the text that it began with.")
    for child in nodes.values():  # parents come before children
        if child.parent in pruned:
            pruned.add(child.id)
    return Tree(head, {key: kept for key, kept in nodes.items() if key not in pruned}, max(nodes) + 1)


def _add_node(line: Mapping[str, Any], nodes: dict[int, Node], sizes: dict[int, tuple[int, int]]) -> None:
    """Add a node. Raises KeyError, TypeError or ValueError for an invalid one."""
    typed(line, token=str, text=str, ids=list, reason=str, given=bool)
    node, at, kept = (_whole(line, key, _END_OF_IDS) for key in ("id", "at", "kept"))
    seed, parent, p = _whole(line, "seed", _END_OF_SEEDS), line["parent"], line["p"]
    if node in nodes:
        raise ValueError(f"id {node} is taken")
    if (parent is None) != (node == ROOT):
        raise ValueError(f"parent is {str(parent)[:40]}")
    if parent is not None:
        parent = _whole(line, "parent", _END_OF_IDS)
        if parent not in nodes:
            raise ValueError(f"there is no node {parent} before it")
    tokens, chars = (0, 0) if parent is None else sizes[parent]
    if at > tokens or kept > chars:
        raise ValueError(f"at is {at} and kept is {kept}, beyond the end of the parent")
    if not line["ids"] or any(type(i) is not int or not 0 <= i < _END_OF_IDS for i in line["ids"]):
        raise ValueError("ids are no token ids")
    if p is not None and (type(p) not in (int, float) or not 0 <= p <= 1):
        raise ValueError("p is no probability")
    ids, texts = tuple(line["ids"]), (line["token"], line["text"])
    nodes[node] = Node(node, parent, at, *texts, ids, kept, p, line["given"], line["reason"], seed)
    sizes[node] = at + len(ids), kept + len(line["text"])


def _whole(line: Mapping[str, Any], key: str, below: int) -> int:
    value = line[key]
    if type(value) is not int or not 0 <= value < below:
        raise ValueError(f"{key} is {str(value)[:40]}")
    return value

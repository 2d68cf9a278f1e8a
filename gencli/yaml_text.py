"""YAML texts: read into a tree of values with line and column (no tags, no code, limited size), and
written so that YAML 1.1 and 1.2 read the same value. Plain scalars follow YAML 1.2: only true and false
are booleans, so `no` is a text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from gencli.json_text import to_json


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Size limits of a kind of file."""

    kind: str
    max_bytes: int
    max_nodes: int  # with aliases expanded: otherwise a few lines could make millions of values
    max_depth: int


PRESET_BOUNDS = FileLimits("preset", max_bytes=256 * 1024, max_nodes=10_000, max_depth=20)
_KINDS = {"str": "text", "bool": "boolean (true or false)", "int": "whole number", "float": "number"}
_TAG = "tag:yaml.org,2002:"

_Scalar = str | int | float | bool | None


class YamlFault(Exception):
    """A fault and its position; lines and columns count from 1."""

    def __init__(self, text: str, line: int = 1, column: int = 1) -> None:
        super().__init__(text)
        self.text, self.line, self.column = text, line, column


@dataclass(frozen=True, slots=True)
class YamlNode:
    """A scalar, a tuple of nodes, or a mapping from keys to (key node, value node)."""

    value: _Scalar | tuple[YamlNode, ...] | Mapping[_Scalar, tuple[YamlNode, YamlNode]]
    line: int
    column: int

    def plain(self) -> Any:
        """Return the value as lists, dicts and scalars, without positions."""
        if isinstance(self.value, tuple):
            return [item.plain() for item in self.value]
        if isinstance(self.value, Mapping):
            return {key: value.plain() for key, (_, value) in self.value.items()}
        return self.value

    def at(self, path: Sequence[int]) -> YamlNode:
        """Return the item at these indices, or the deepest node on the path; a mapping is a list of pairs."""
        node = self
        parts: Sequence[Any] = self._parts()
        for index in path:
            if index >= len(parts):
                break
            part = parts[index]
            node, parts = (part, part._parts()) if isinstance(part, YamlNode) else (part[0], part)
        return node

    def fault(self, text: str, path: Sequence[int] = ()) -> YamlFault:
        """Return a fault at this node, or at the item at `path`."""
        node = self.at(path)
        return YamlFault(text, node.line, node.column)

    def _parts(self) -> Sequence[Any]:
        if isinstance(self.value, Mapping):
            return tuple(self.value.values())
        return self.value if isinstance(self.value, tuple) else ()


def node_of(value: Any) -> YamlNode:
    """Return the tree of a JSON-like value, with positions 0."""
    if isinstance(value, Mapping):
        return YamlNode({str(key): (node_of(key), node_of(item)) for key, item in value.items()}, 0, 0)
    if isinstance(value, list | tuple):
        return YamlNode(tuple(node_of(item) for item in value), 0, 0)
    return YamlNode(value, 0, 0)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - YAML 1.1's are replaced, not extended


_RULES = (
    ("null", r"null|~|", "n~"),
    ("bool", r"true|false", "tf"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", "-+.0123456789"),
)
for _name, _pattern, _first in _RULES:
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), [*_first, ""])


def parse(content: bytes, faults: list[YamlFault], bounds: FileLimits = PRESET_BOUNDS) -> YamlNode | None:
    """Return the document's tree, and add its faults to `faults`; None if it cannot be read."""
    if len(content) > bounds.max_bytes:
        text = f"The file has {len(content)} bytes, but a {bounds.kind} has at most {bounds.max_bytes}."
        faults.append(YamlFault(text))
        return None
    try:
        root = _Loader(content.decode("utf-8-sig")).get_single_node()
        return _TreeBuilder(faults, bounds).build(root, 0) if root is not None else None
    except YamlFault as fault:
        faults.append(fault)
    except UnicodeDecodeError as error:
        faults.append(YamlFault("The file is not UTF-8 text.", content.count(b"\n", 0, error.start) + 1))
    except RecursionError:
        faults.append(YamlFault(f"Values are nested more than {bounds.max_depth} deep."))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = (mark.line + 1, mark.column + 1) if mark else ()
        faults.append(YamlFault(f"This is not valid YAML: {error.problem or error.context}.", *position))
    except yaml.YAMLError as error:
        faults.append(YamlFault(f"This is not valid YAML: {' '.join(str(error).split())}."))
    return None


class _TreeBuilder:
    """Converts PyYAML's nodes to YamlNode, within the bounds."""

    def __init__(self, faults: list[YamlFault], bounds: FileLimits) -> None:
        self._faults, self._bounds, self._count = faults, bounds, 0

    def build(self, node: yaml.Node, depth: int) -> YamlNode:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        self._count += 1
        if self._count > self._bounds.max_nodes:
            message = f"There are more than {self._bounds.max_nodes} values, aliases included."
            raise YamlFault(message, line, column)
        if depth > self._bounds.max_depth:
            raise YamlFault(f"Values are nested more than {self._bounds.max_depth} deep.", line, column)
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return YamlNode(tuple(self.build(item, depth + 1) for item in node.value), line, column)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return YamlNode(self._mapping(node, depth), line, column)
        if isinstance(node, yaml.ScalarNode) and kind in _READERS:
            try:
                return YamlNode(_READERS[kind](node.value), line, column)
            except (KeyError, ValueError):
                raise YamlFault(f"{node.value[:40]!r} is not a {_KINDS[kind]}.", line, column) from None
        tag = kind if kind.startswith("!") else f"!!{kind}"
        raise YamlFault(f"The tag {tag} is not allowed; write the value as it is.", line, column)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[_Scalar, tuple[YamlNode, YamlNode]]:
        pairs: dict[_Scalar, tuple[YamlNode, YamlNode]] = {}
        for key_node, value_node in node.value:
            key, value = self.build(key_node, depth + 1), self.build(value_node, depth + 1)
            if isinstance(key.value, tuple | Mapping):
                self._faults.append(key.fault("A key has to be a text or a number."))
            elif key.value in pairs:
                first = pairs[key.value][0].line
                self._faults.append(key.fault(f"The key {key.value!r} is here and in line {first}."))
            else:
                pairs[key.value] = (key, value)
        return pairs


_READERS: Mapping[str, Callable[[str], _Scalar]] = {
    "str": lambda text: text.encode().decode(),  # raises for a lone surrogate
    "null": lambda text: None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": int,
    "float": lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
}


# A number or a date in one version of YAML, and text in the other.
_AMBIGUOUS = re.compile(r"[-+]?[0-9.][0-9a-fA-FxXob_.eE+:-]*")
_BREAKS = re.compile("[\r\x85\u2028\u2029\ufeff]")  # readers may turn them into newlines, or drop them


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as literal blocks, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _BREAKS.search(text) or _AMBIGUOUS.fullmatch(text):
        style = '"'
    elif "\n" in text:
        # Leading spaces of the first line would be read as indentation; the emitter's indentation indicator
        # is wrong if blank lines come first.
        style = '"' if text[0] in " \n" else "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_yaml(value: Any, *, encoding: str = "utf-8") -> str:
    """Return a YAML document with its final newline. It has the same value as the JSON of `to_json`."""
    text = yaml.dump(
        json.loads(to_json(value)),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=encoding.lower().replace("-", "").startswith("utf"),
        width=math.inf,
    )
    end = "...\n"  # of a document that is a plain scalar; an indented one is text
    return text.removesuffix(end) if text.endswith(f"\n{end}") else text

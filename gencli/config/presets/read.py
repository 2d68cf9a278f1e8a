"""Read a preset file: its values, the presets that it extends, and all its faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gencli.config.presets.find import describe
from gencli.config.presets.keys import KEYS, checked, unknown_key
from gencli.config.presets.preset import Preset, shown
from gencli.config.presets.values import placed
from gencli.config.settings import PRESET, Assigned
from gencli.config.watermark import MARKS
from gencli.errors import ConfigError, UsageError
from gencli.files import open_regular
from gencli.text.text_stream import check_pattern
from gencli.yaml_text import PRESET_BOUNDS, Bounds, YamlFault, YamlNode, node_of, parse
from processors.chain import fields_of
from processors.conditions.when import When
from processors.errors import ParamError, ProcessorsError, UnknownStage
from processors.order import expand
from processors.params import WHEN, Params
from processors.registry import Registry

__all__ = ["read_preset", "read_text", "read_values"]

_GREEDY = "greedy"  # value of a field that makes the draw greedy
_MAX_SHOWN = 40  # characters of an invalid value in messages
_PLUGIN = "If it belongs to a plug-in, that has to be given as well."


def read_preset(path: Path, registry: Registry) -> Preset:
    """Return the checked content of a file. Raises ConfigError only if the file cannot be read."""
    try:
        with open_regular(path) as file:
            content = file.read(PRESET_BOUNDS.max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"The preset {shown(path)} cannot be read: {error.strerror or error}.") from None
    return read_text(content, path, registry)


def read_text(content: bytes, path: Path, registry: Registry, bounds: Bounds = PRESET_BOUNDS) -> Preset:
    """Return the checked text. Faults name `path`; file names in the text are relative to its folder."""
    preset = Preset(path, describe(content))
    root = parse(content, preset.faults, bounds)
    if root is not None and root.value is not None:
        _Reader(preset, registry).read(root)
    return preset


def read_values(values: Mapping[str, Any], registry: Registry) -> Preset:
    """Return the checked values, by the rules of presets. Faults have no lines."""
    preset = Preset(Path())
    _Reader(preset, registry).read(node_of(values))
    return preset


class _Reader:
    """Reads all keys and collects the faults."""

    def __init__(self, preset: Preset, registry: Registry) -> None:
        self._preset = preset
        self._registry = registry
        self._set_by: dict[tuple[str, str, When | None], int] = {}

    def read(self, root: YamlNode) -> None:
        if not isinstance(root.value, Mapping):
            kind = _kind(root) if isinstance(root.value, tuple) else "a single value"  # may be a whole file
            self._note(root.fault(f"A preset is a mapping of keys to values, not {kind}."))
            return
        for key, (key_node, value) in root.value.items():
            try:
                self._key(str(key), key_node, value)
            except YamlFault as fault:
                self._note(fault)

    def _note(self, fault: YamlFault) -> None:
        self._preset.faults.append(fault)

    def _key(self, key: str, key_node: YamlNode, value: YamlNode) -> None:
        if key == "extends":
            self._extends(value)
        elif key == "notes":
            self._notes(value)
        elif key == "chain":
            self._chain(key_node, value)
        elif key == "stages":
            self._stages(value)
        elif key == "fields":
            self._fields(value)
        elif key in KEYS:
            self._option(key, key_node, value)
        else:
            raise key_node.fault(unknown_key(key))

    def _extends(self, node: YamlNode) -> None:
        for item in node.value if isinstance(node.value, tuple) else (node,):
            if not isinstance(item.value, str) or not item.value:
                raise item.fault(f"extends is {_kind(item)}, but has to be the name of a preset, or a list.")
            self._preset.extends.append((item.value, item))

    def _notes(self, node: YamlNode) -> None:
        for item in node.value if isinstance(node.value, tuple) else (node,):
            if not isinstance(item.value, str) or not item.value:
                raise item.fault(f"notes is {_kind(item)}, but has to be a text, or a list of texts.")
            self._preset.notes.append(item.value)

    def _option(self, key: str, key_node: YamlNode, node: YamlNode) -> None:
        try:
            value = checked(key, node.plain())
        except ParamError as error:
            raise node.fault(str(error), error.path) from None
        for index, pattern in enumerate(value if key == "stop_regex" else ()):
            try:
                check_pattern(pattern)
            except UsageError as error:
                raise node.fault(error.message, (index,)) from None
        folder = self._preset.path.parent
        self._preset.values[key] = placed(key, value, folder) if self._preset.path.name else value
        self._preset.places[key] = self._place(key_node)
        if KEYS[key].stage:
            self._claim(KEYS[key].stage, KEYS[key].field, KEYS[key].when, key_node)

    def _stages(self, node: YamlNode) -> None:
        if not isinstance(node.value, Mapping):
            raise node.fault(f"stages is {_kind(node)}, but has to be a mapping of stages to values.")
        self._each(self._stage(str(name), *nodes) for name, nodes in node.value.items())

    def _fields(self, node: YamlNode) -> None:
        """Read stages grouped by the JSON pointer of the value in which they act."""
        if not isinstance(node.value, Mapping):
            raise node.fault(f"fields is {_kind(node)}, but has to be a mapping of JSON pointers to stages.")
        for path, (path_node, value) in node.value.items():
            try:
                when = When.of({"path": path})
            except ParamError as error:
                self._note(path_node.fault(f"fields: {error}"))
                continue
            stages = node_of({"temperature": 0}).value if value.value == _GREEDY else value.value
            if not isinstance(stages, Mapping):
                text = f"{path} is {_kind(value)}, but has to be {_GREEDY}, or a mapping of stages to values."
                self._note(value.fault(text))
                continue
            self._each(
                self._entry(str(name), _moved(name_node, value), _moved(given, value), when)
                for name, (name_node, given) in stages.items()
            )

    def _chain(self, key_node: YamlNode, node: YamlNode) -> None:
        if not isinstance(node.value, tuple) or not node.value:
            raise node.fault(f"chain is {_kind(node)}, but has to be a list of stages.")
        order: list[str] = []
        self._each(self._place_of(item, order) for item in node.value)
        self._preset.values["chain"] = tuple(order)
        self._preset.places["chain"] = self._place(key_node)

    def _place_of(self, item: YamlNode, order: list[str]) -> list[YamlFault]:
        """Read an item of the list `chain`, append its name to `order`, return the faults."""
        if isinstance(item.value, Mapping) and len(item.value) == 1:
            ((name, (name_node, value)),) = item.value.items()
            faults = self._stage(str(name), name_node, value)
        elif isinstance(item.value, str):
            name, name_node, faults = item.value, item, []
        else:
            return [item.fault(f"An item of chain is {_kind(item)}, but has to be a name, or name: value.")]
        try:
            expand((*order, str(name)), self._registry)
        except ProcessorsError as error:
            return faults or [name_node.fault(str(error))]
        order.append(str(name))
        return faults

    def _each(self, found: Iterator[list[YamlFault]]) -> None:
        for faults in found:
            self._preset.faults.extend(faults)

    def _stage(self, name: str, name_node: YamlNode, node: YamlNode) -> list[YamlFault]:
        """Read the values of a stage, or of its entries with conditions in a list; return the faults."""
        entries = node.value if isinstance(node.value, tuple) else ()
        if entries and all(isinstance(entry.value, Mapping) for entry in entries):
            return [fault for entry in entries for fault in self._entry(name, name_node, entry)]
        return self._entry(name, name_node, node)

    def _entry(
        self, name: str, name_node: YamlNode, node: YamlNode, when: When | None = None
    ) -> list[YamlFault]:
        """Read the values of a stage, under the condition `when` if given; return the faults."""
        try:
            params = self._registry.spec(name).params
        except UnknownStage as error:
            return [name_node.fault(str(error) if error.is_near else f"{error} {_PLUGIN}")]
        if name in MARKS:
            return [name_node.fault(f"The stage {name} is set by `watermark` and `watermark_key`.")]
        if name == "tail":
            return [name_node.fault("The stage tail is set from the model's tokenizer.")]
        if node.value == {}:
            return [node.fault(f"The stage {name} is given no value. Give one, or leave the stage out.")]
        given = fields_of(name, node.plain(), self._registry)
        if WHEN in given:
            _, value_node = _nodes_of(WHEN, node, name_node)
            if when is not None:
                return [value_node.fault(f"{name}: its condition is the path above it. Leave when out.")]
            try:
                when = When.of(given.pop(WHEN))
            except ParamError as error:
                return [value_node.fault(f"{name}: when {error}")]
            if not given and self._registry.is_builtin(name):
                return [node.fault(f"The stage {name} is given a condition, but no value. Give both.")]
        return self._values(name, params, given, when, (name_node, node))

    def _values(
        self,
        name: str,
        params: type[Params],
        given: Mapping[str, Any],
        when: When | None,
        nodes: tuple[YamlNode, YamlNode],
    ) -> list[YamlFault]:
        """Assign the fields of an entry, with the nodes of its name and values; return the faults."""
        faults, (name_node, node) = [], nodes
        for key, value in given.items():
            key_node, value_node = _nodes_of(key, node, name_node)
            try:
                made = params.from_mapping({key: value}, stage=name)
                self._claim(name, key, when, key_node)
            except ParamError as error:
                at = value_node if key in params.__dataclass_fields__ else key_node
                faults.append(at.fault(str(error), error.path))
            except YamlFault as fault:
                faults.append(fault)
            else:
                place = self._place(key_node)
                found = Assigned(name, key, getattr(made, key), PRESET, place, when=when)
                self._preset.stages.append(found)
        return faults

    def _claim(self, stage: str, key: str, when: When | None, node: YamlNode) -> None:
        first = self._set_by.setdefault((stage, key, when), node.line)
        if first != node.line:
            raise node.fault(f"{key} of the stage {stage} is set here and in line {first}. Leave one out.")

    def _place(self, node: YamlNode) -> str:
        return f"{shown(self._preset.path)}:{node.line}"


def _moved(node: YamlNode, place: YamlNode) -> YamlNode:
    """Return a generated node with the position of the text that it stands for."""
    return node if node.line else replace(node, line=place.line, column=place.column)


def _nodes_of(field_name: str, node: YamlNode, name_node: YamlNode) -> tuple[YamlNode, YamlNode]:
    """Return the nodes of a field and its value; for a main value the name and the value of the stage."""
    if isinstance(node.value, Mapping) and field_name in node.value:
        return node.value[field_name]
    return name_node, node


def _kind(node: YamlNode) -> str:
    if isinstance(node.value, tuple):
        return "a list" if node.value else "an empty list"
    if isinstance(node.value, Mapping):
        return "a mapping"
    if node.value in (None, ""):
        return "empty"
    text = repr(node.value)
    return text if len(text) <= _MAX_SHOWN else "a long text"

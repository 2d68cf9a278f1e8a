"""YAML presets: their keys, all faults of a file, stacking (extended presets first), the JSON Schema."""

from __future__ import annotations

import os
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from gencli.config.chain_assembly import MARKS
from gencli.config.option import Option
from gencli.config.option_names import meant_option
from gencli.config.preset_files import description_of, find_preset, is_path, placed, shipped_presets
from gencli.config.run_options import OPTIONS
from gencli.config.settings import PRESET, Assigned, PresetInfo, SettingsLayer, checked, hint_of
from gencli.errors import ConfigError, UsageError
from gencli.files import open_regular
from gencli.text.text_stream import check_pattern
from gencli.yaml_text import PRESET_BOUNDS, FileLimits, YamlFault, YamlNode, node_of, parse
from processors.catalog import Phase, StageSpec
from processors.chain import GROUPS, expand, fields_of
from processors.errors import ParamError, ProcessorsError, UnknownStage
from processors.params import WHEN, WHEN_DOC, Bounds, describe, listed
from processors.registry import Registry, builtin_registry
from processors.request_values import NO_CONDITION, When


@dataclass(slots=True)
class Preset:
    """The content of a preset file; usable only without faults."""

    path: Path
    description: str = ""
    extends: list[tuple[str, YamlNode]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    stages: list[Assigned] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[YamlFault] = field(default_factory=list)

    def layer(self, origin: str = PRESET, *, is_inherited: bool = False) -> SettingsLayer:
        """Return the values as a layer of settings; `is_inherited`: whether another preset extends this one.

        Only a layer of origin `preset` has a PresetInfo, because an exported preset never refers to other
        files.
        """
        here = self.path.parent
        extends = tuple(os.path.abspath(here / name) if is_path(name) else name for name, _ in self.extends)
        info = PresetInfo(self.description, extends, is_inherited)
        stages = tuple(replace(assigned, origin=origin) for assigned in self.stages)
        notices = tuple(f"{origin.capitalize()} {self.path.stem}: {note}" for note in self.notes)
        preset = info if origin == PRESET else None
        return SettingsLayer(origin, self.values, self.places, stages, notices, preset=preset)

    def messages(self) -> list[str]:
        """Return the faults ordered by line, each with file, line and column."""
        faults = sorted(self.faults, key=lambda fault: (fault.line, fault.column))
        return [f"{shown(self.path)}:{fault.line}:{fault.column}: {fault.text}" for fault in faults]


def shown(path: Path) -> str:
    """Return the path, relative to the current folder if it is below it; the name of a preset that ships."""
    if path.resolve().is_relative_to(shipped_presets().resolve()):
        return path.stem
    here = Path.cwd()
    return os.fspath(path.relative_to(here) if path.is_relative_to(here) else path)


_GREEDY = "greedy"  # value of a field that makes the draw greedy
_MAX_SHOWN = 40  # characters of an invalid value in messages
_PLUGIN = "If it belongs to a plug-in, that has to be given as well."


def read_text(content: bytes, path: Path, registry: Registry, bounds: FileLimits = PRESET_BOUNDS) -> Preset:
    """Return the checked text. Faults name `path`; file names in the text are relative to its folder."""
    preset = Preset(path, description_of(content))
    root = parse(content, preset.faults, bounds)
    if root is not None and root.value is not None:
        _PresetReader(preset, registry).read(root)
    return preset


def read_values(values: Mapping[str, Any], registry: Registry) -> Preset:
    """Return the checked values, by the rules of presets. Faults have no lines."""
    preset = Preset(Path())
    _PresetReader(preset, registry).read(node_of(values))
    return preset


class _PresetReader:
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
            self._preset.extends += self._texts(key, "the name of a preset, or a list", value)
        elif key == "notes":
            self._preset.notes += [text for text, _ in self._texts(key, "a text, or a list of texts", value)]
        elif key == "chain":
            self._chain(key_node, value)
        elif key == "stages":
            if not isinstance(value.value, Mapping):
                raise value.fault(f"stages is {_kind(value)}, but has to be a mapping of stages to values.")
            for name, nodes in value.value.items():
                self._stage(str(name), *nodes)
        elif key == "fields":
            self._fields(value)
        elif key in KEYS:
            self._option(key, key_node, value)
        else:
            raise key_node.fault(unknown_key(key))

    def _texts(self, key: str, wanted: str, node: YamlNode) -> Iterator[tuple[str, YamlNode]]:
        # The texts of a key that holds one or a list, with their nodes.
        for item in node.value if isinstance(node.value, tuple) else (node,):
            if not isinstance(item.value, str) or not item.value:
                raise item.fault(f"{key} is {_kind(item)}, but has to be {wanted}.")
            yield item.value, item

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
        self._preset.places[key] = self._source(key_node)
        if KEYS[key].stage:
            self._claim(KEYS[key].stage, KEYS[key].field, KEYS[key].when, key_node)

    def _fields(self, node: YamlNode) -> None:
        # Stages grouped by the JSON pointer of the value in which they act.
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
            for name, nodes in stages.items():
                # Nodes that are made here have the position of the text that they stand for.
                line, column = value.line, value.column
                key, fields = (n if n.line else replace(n, line=line, column=column) for n in nodes)
                self._entry(str(name), key, fields, when)

    def _chain(self, key_node: YamlNode, node: YamlNode) -> None:
        if not isinstance(node.value, tuple) or not node.value:
            raise node.fault(f"chain is {_kind(node)}, but has to be a list of stages.")
        order: list[str] = []
        for item in node.value:
            self._item(item, order)
        self._preset.values["chain"] = tuple(order)
        self._preset.places["chain"] = self._source(key_node)

    def _item(self, item: YamlNode, order: list[str]) -> None:
        # An item of the list `chain`, whose name is added to `order`.
        num_faults = len(self._preset.faults)
        if isinstance(item.value, Mapping) and len(item.value) == 1:
            ((key, (name_node, value)),) = item.value.items()
            name = str(key)
            self._stage(name, name_node, value)
        elif isinstance(item.value, str):
            name, name_node = item.value, item
        else:
            message = f"An item of chain is {_kind(item)}, but has to be a name, or name: value."
            return self._note(item.fault(message))
        try:
            expand((*order, name), self._registry)
        except ProcessorsError as error:
            if len(self._preset.faults) == num_faults:
                self._note(name_node.fault(str(error)))
        else:
            order.append(name)

    def _stage(self, name: str, name_node: YamlNode, node: YamlNode) -> None:
        # The values of a stage, or of its entries with conditions in a list.
        entries = node.value if isinstance(node.value, tuple) else ()
        if not entries or not all(isinstance(entry.value, Mapping) for entry in entries):
            entries = (node,)
        for entry in entries:
            self._entry(name, name_node, entry)

    def _entry(self, name: str, name_node: YamlNode, node: YamlNode, when: When | None = None) -> None:
        try:
            params = self._registry.spec(name).params
        except UnknownStage as error:
            return self._note(name_node.fault(str(error) if error.is_near else f"{error} {_PLUGIN}"))
        if name in MARKS:
            message = f"The stage {name} is set by `watermark` and `watermark_key`."
            return self._note(name_node.fault(message))
        if name == "tail":
            return self._note(name_node.fault("The stage tail is set from the model's tokenizer."))
        if node.value == {}:
            message = f"The stage {name} is given no value. Give one, or leave the stage out."
            return self._note(node.fault(message))
        values = fields_of(name, node.plain(), self._registry)
        if WHEN in values:
            _, value_node = _nodes_of(WHEN, node, name_node)
            if when is not None:
                message = f"{name}: its condition is the path above it. Leave when out."
                return self._note(value_node.fault(message))
            try:
                when = When.of(values.pop(WHEN))
            except ParamError as error:
                return self._note(value_node.fault(f"{name}: when {error}"))
            if not values and self._registry.is_builtin(name):
                message = f"The stage {name} is given a condition, but no value. Give both."
                return self._note(node.fault(message))
        for key, value in values.items():
            key_node, value_node = _nodes_of(key, node, name_node)
            try:
                value = getattr(params.from_mapping({key: value}, stage=name), key)
                self._claim(name, key, when, key_node)
            except ParamError as error:
                at = value_node if key in params.__dataclass_fields__ else key_node
                self._note(at.fault(str(error), error.path))
            except YamlFault as fault:
                self._note(fault)
            else:
                source = self._source(key_node)
                self._preset.stages.append(Assigned(name, key, value, PRESET, source, when=when))
        return None

    def _claim(self, stage: str, key: str, when: When | None, node: YamlNode) -> None:
        first = self._set_by.setdefault((stage, key, when), node.line)
        if first != node.line:
            raise node.fault(f"{key} of the stage {stage} is set here and in line {first}. Leave one out.")

    def _source(self, node: YamlNode) -> str:
        return f"{shown(self._preset.path)}:{node.line}"


def _nodes_of(field_name: str, node: YamlNode, name_node: YamlNode) -> tuple[YamlNode, YamlNode]:
    # The nodes of a field and its value; for a main value the name and the value of the stage.
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


MAX_FILES = 64


def load_presets(
    names: Sequence[str], registry: Registry | None = None, *, origin: str = PRESET
) -> list[SettingsLayer]:
    """Return the layers of presets, later ones stronger. Raises ConfigError with the first fault."""
    stacks = [expand_preset(find_preset(name), registry) for name in names]
    pairs = [(preset, preset is not stack[-1]) for stack in stacks for preset in stack]
    for preset, _ in pairs:
        if messages := preset.messages():
            hint = f"It has {len(messages)} faults; gencli config lint shows all." if messages[1:] else ""
            raise ConfigError(messages[0], hint=hint)
    return [preset.layer(origin, is_inherited=is_inherited) for preset, is_inherited in pairs]


def expand_preset(path: Path, registry: Registry | None = None) -> list[Preset]:
    """Return the presets that the preset extends, then the preset. An invalid `extends` is a fault."""
    presets: list[Preset] = []
    for preset in _expanded(path, (), registry or builtin_registry()):
        presets.append(preset)
        if len(presets) > MAX_FILES:
            fault = f"extends more than {MAX_FILES} files, counted as often as named."
            raise ConfigError(f"{shown(path)} {fault}")
    return presets


def _expanded(path: Path, trail: tuple[Path, ...], registry: Registry) -> Iterator[Preset]:
    if len(trail) > MAX_FILES:
        raise ConfigError(f"{shown(trail[0])} extends files more than {MAX_FILES} deep.")
    try:
        with open_regular(path) as file:
            content = file.read(PRESET_BOUNDS.max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"The preset {shown(path)} cannot be read: {error.strerror or error}.") from None
    preset = read_text(content, path, registry)
    for name, node in preset.extends:
        try:
            other = find_preset(name, folder=path.parent)
        except ConfigError as error:
            preset.faults.append(node.fault(f"{error.message} {error.hint}".strip()))
            continue
        way = (*trail, path)
        if other in way:
            names = " -> ".join(shown(p) for p in (*way[way.index(other) :], other))
            preset.faults.append(node.fault(f"extends goes in a circle: {names}."))
        else:
            yield from _expanded(other, way, registry)
    yield preset


_FLAG_ONLY = {entry.key: entry.flag_only for entry in OPTIONS if entry.flag_only}
KEYS: dict[str, Option] = {entry.key: entry for entry in OPTIONS if entry.key not in {*_FLAG_ONLY, "chain"}}
STRUCTURE = {
    "extends": "Presets that this one builds on, one or a list: names, or files relative to this one. "
    "Later ones win over earlier ones, and this file over all.",
    "chain": "The order of the stages as a list: a name (a stage, a phase, or penalties for all three) "
    "gives a place, a name with a value gives both, as in `- top_k: 40` or `- top_k: {k: 40, ties: keep}`.",
    "notes": "What is said on stderr when the preset is used, a text or a list of texts.",
    "stages": "Values of stages by name: a main value, a mapping of fields, or a list of such mappings with "
    "conditions (when). They keep the default order.",
    "fields": "Stages inside values of a JSON document, by JSON pointer: greedy, or a mapping as in stages.",
}


def stage_specs(registry: Registry | None = None) -> tuple[StageSpec, ...]:
    """Return the stages that a preset may name, in default order, without those set by other values."""
    registry = registry or builtin_registry()
    return tuple(registry.spec(name) for name in registry.names() if name not in {"tail", *MARKS})


def unknown_key(key: str) -> str:
    """Return the message for an unknown key."""
    if key in _FLAG_ONLY:
        return f"{key} is a flag only, no key of a preset: {_FLAG_ONLY[key]}."
    if key in (spec.name for spec in stage_specs()):
        return f"There is no key {key!r}. It is a stage: write it under stages: or chain:."
    spelled = {name: repr(name) for name in (*KEYS, *STRUCTURE)}
    return f"There is no key {key!r}. {meant_option(key, spelled) or 'docs/reference/options.md lists all.'}"


_KINDS = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def json_schema(registry: Registry | None = None) -> dict[str, Any]:
    """Return the schema; without a registry it has the built-in stages."""
    specs = stage_specs(registry)
    names = [spec.name for spec in specs]
    text = {"type": "string", "minLength": 1}
    texts = {"anyOf": [text, {"type": "array", "items": text}]}
    stages = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    places = [*names, *GROUPS, *(phase.name.lower() for phase in Phase)]
    item = _object(stages)
    shapes: dict[str, dict[str, Any]] = {
        "extends": texts,
        "chain": {
            "type": "array",
            "minItems": 1,
            "items": {"anyOf": [{"enum": places}, {**item, "minProperties": 1, "maxProperties": 1}]},
        },
        "notes": texts,
        "stages": item,
        "fields": {
            "type": "object",
            "propertyNames": {"pattern": "^(/.*)?$"},
            "additionalProperties": {"anyOf": [{"const": "greedy"}, item]},
        },
    }
    word, number = {"type": "string"}, {"type": "integer", "minimum": 0}
    tags = {"anyOf": [{"const": "thinking"}, {"type": "array", "items": word, "minItems": 2, "maxItems": 2}]}
    parts = {"from": number, "to": number, "inside": tags, "outside": tags, "after": word, "path": word}
    when = {"description": WHEN_DOC, **_object(parts, minProperties=1)}
    structure = {key: {"description": STRUCTURE[key], **shape} for key, shape in shapes.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A preset of gencli",
        "type": "object",
        "properties": {**structure, **{key: _option(entry) for key, entry in KEYS.items()}},
        "additionalProperties": False,
        "$defs": {**{spec.name: _stage(spec) for spec in specs}, "when": when},
    }


def _option(entry: Option) -> dict[str, Any]:
    shape = _shape(hint_of(entry), entry.bounds)
    if entry.many and shape.get("type") == "array":
        shape = {"anyOf": [shape, shape["items"]]}
    return _described(entry.help, shape, entry.default)


def _stage(spec: StageSpec) -> dict[str, Any]:
    fields = {
        name: _described(about["doc"], _shape(about["type"], about["bounds"]), about["default"])
        for name, about in describe(spec.params).items()
    }
    main = {key: value for key, value in fields[spec.params.main()].items() if key != "description"}
    has_condition = spec.name not in NO_CONDITION
    parts = {**fields, WHEN: {"$ref": "#/$defs/when"}} if has_condition else fields
    whole = _object(parts, minProperties=1)
    several = {"type": "array", "minItems": 1, "items": whole}
    shapes = [main, whole, several] if has_condition else [main, whole]
    return {"description": (spec.params.__doc__ or "").strip(), "anyOf": shapes}


def _object(properties: Mapping[str, Any], **limits: int) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, **limits}


def _described(doc: str, shape: dict[str, Any], default: Any) -> dict[str, Any]:
    return {"description": doc, **shape, **({} if default is None else {"default": listed(default)})}


def _shape(hint: Any, bounds: Bounds) -> dict[str, Any]:
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return {"enum": list(arguments)}
    if get_origin(hint) in (Union, types.UnionType):
        return {"anyOf": [_shape(item, bounds) for item in arguments]}
    if get_origin(hint) is tuple and arguments[-1] is Ellipsis:
        items = {"type": "array", "items": _shape(arguments[0], bounds)}
        if get_origin(arguments[0]) is not tuple or get_args(arguments[0])[-1] is Ellipsis:
            return items
        value = _shape(get_args(arguments[0])[1], bounds)  # pairs may be written as a mapping
        return {"anyOf": [items, {"type": "object", "additionalProperties": value}]}
    if get_origin(hint) is tuple:
        parts = [_shape(item, bounds) for item in arguments]
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    kind: dict[str, Any] = {"type": _KINDS[hint]}
    if hint in (int, float):
        limits = {key: getattr(bounds, name) for name, key in _BOUNDS.items()}
        kind.update({key: limit for key, limit in limits.items() if limit is not None})
    return kind

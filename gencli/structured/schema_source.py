"""Schemas from a file, a JSON text, or the concise form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gencli.files import open_regular
from gencli.json_text import DocumentError, JsonLimits, parse_json
from gencli.structured.schema_check import MAX_BYTES, check_size
from gencli.structured.schema_errors import SchemaError
from gencli.structured.schema_inputs import YAML, named_file, parse_concise
from gencli.yaml_text import FileLimits, YamlFault
from gencli.yaml_text import parse as parse_yaml

_LIMITS = JsonLimits(has_decimals=False)
_YAML_BOUNDS = FileLimits("YAML schema", max_bytes=MAX_BYTES, max_nodes=100_000, max_depth=64)


def read_schema(text: str) -> dict[str, Any] | bool:
    """Return the schema given by the text of an option.

    A text that begins with { or is true or false is JSON. A name that ends in .json, .yaml or .yml, or of an
    existing file, is a file. Any other text is in the concise notation. Raises SchemaError if there is no
    schema; `check_schema` checks the schema itself.
    """
    path, stripped = named_file("json_schema", text), text.strip()
    if path is not None:
        return _from_file(path)
    if stripped.startswith("{") or stripped in ("true", "false"):
        return _from_json(text, "The schema")
    return parse_concise(text)


def _from_file(path: Path) -> dict[str, Any] | bool:
    try:
        with open_regular(path) as file:
            content = file.read(MAX_BYTES + 1)
            check_size(len(content) if len(content) <= MAX_BYTES else path.stat().st_size)
    except OSError as error:
        raise SchemaError(f"The schema {path} cannot be read: {error.strerror or error}.") from None
    if path.suffix.lower() in YAML:
        faults: list[YamlFault] = []
        node = parse_yaml(content, faults, _YAML_BOUNDS)
        value = node.plain() if node is not None else None
        if not faults and (why := _not_json(value)):
            faults.append(YamlFault(why))
        if faults:
            lines = "".join(f"\n  {path}:{fault.line}:{fault.column}: {fault.text}" for fault in faults)
            raise SchemaError(f"The schema {path} cannot be used:{lines}")
        return _schema(value, f"The schema {path}")
    try:
        return _from_json(content.decode(), f"The schema {path}")
    except UnicodeDecodeError:
        raise SchemaError(f"The schema {path} is not UTF-8 text.") from None


def _from_json(text: str, subject: str) -> dict[str, Any] | bool:
    check_size(len(text.encode(errors="replace")))
    try:
        return _schema(parse_json(text, _LIMITS), subject)
    except DocumentError as error:
        raise SchemaError(f"{subject} is not valid JSON: {error.about(text)}") from None


def _not_json(value: Any) -> str:
    """Return the reason why a YAML value is not a JSON value; "" if it is."""
    for key in value if isinstance(value, dict) else ():
        if not isinstance(key, str):
            return f"The key {key!r} has to be a text: put it in quotes."
    if isinstance(value, dict | list):
        return next(filter(None, map(_not_json, value.values() if isinstance(value, dict) else value)), "")
    is_finite = not isinstance(value, float) or abs(value) < float("inf")
    return "" if is_finite else f"JSON has no number {value}."


def _schema(value: Any, subject: str) -> dict[str, Any] | bool:
    if isinstance(value, dict | bool):
        return value
    kind = {list: "a list", str: "a text", type(None): "null"}.get(type(value), "a number")
    raise SchemaError(f"{subject} is {kind}, but has to be an object, true or false.")

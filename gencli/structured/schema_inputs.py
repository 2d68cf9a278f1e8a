"""Forms in which users give a schema: names of files, the concise form in one line, Pydantic models,
dataclasses and TypedDicts. A user may name files and models, data may not: importing a model runs
Python code of its module.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from gencli.core.tree_shapes import is_tree_file
from gencli.errors import ConfigError
from gencli.structured.schema_errors import SchemaError, child, shortened, shown
from processors.errors import close_names

TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}

_NAMES = {**{name: short for short, name in TYPES.items()}, "text": "str", "double": "float"}
_FIELD = re.compile(r"\s*(?P<name>[^\s:\[\](){}<>\"'?|=]+)(?P<list>\[\])?(?P<rest>[^:]*)(?::(?P<text>.*))?")
_HINT = (
    "Fields look like this: name, age int: in years, tags[]. A description with a comma needs one field a "
    "line. For anything else write a JSON schema."
)


def parse_concise(text: str) -> dict[str, Any]:
    """Return the JSON schema of an object with these fields. SchemaError shows the position of a mistake."""
    if not text.strip():
        raise SchemaError("The schema is empty.", hint=_HINT)
    properties: dict[str, Any] = {}
    for field in _fields(text.strip()):
        match = _FIELD.match(field.line[: field.end], field.start)
        if match is None:
            raise field.fault(*_no_field(field.line[: field.end], field.start))
        name = match["name"]
        if name in properties:
            raise field.fault(match.start("name"), f"the field {name!r} is defined twice")
        item = {"type": _type(field, match)}
        schema: dict[str, Any] = {"type": "array", "items": item} if match["list"] else item
        if description := (match["text"] or "").strip():
            schema["description"] = description
        properties[name] = schema
    closed = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": properties, **closed}


@dataclass(frozen=True, slots=True)
class _Field:
    """A field from `start` to `end` of a line; `number` is the line number if there are several lines."""

    line: str
    start: int
    end: int
    number: int = 0

    def fault(self, at: int, why: str) -> SchemaError:
        where = f"line {self.number}, column {at + 1}" if self.number else f"column {at + 1}"
        return SchemaError(f"The schema, {where}: {why}\n  {self.line}\n  {' ' * at}^", hint=_HINT)


def _fields(text: str) -> Iterator[_Field]:
    if len(lines := text.splitlines()) > 1:
        yield from (_Field(line, 0, len(line), n) for n, line in enumerate(lines, 1) if line.strip())
        return
    start = 0
    for part in text.split(","):
        yield _Field(text, start, start + len(part))
        start += len(part) + 1


def _type(field: _Field, match: re.Match[str]) -> str:
    word = match["rest"].strip()
    at = match.end("rest") - len(match["rest"].lstrip())
    if not word:
        return TYPES["str"]
    if word in TYPES and match["rest"][0].isspace():
        return TYPES[word]
    if word == "[]" or (word.endswith("[]") and word[:-2] in TYPES):
        raise field.fault(at, f"a list is written {match['name']}[] {word[:-2]}".rstrip())
    if re.search(r"[\[\](){}<>|=?,]", word):
        raise field.fault(*_no_field(field.line[: match.end("rest")], at))
    near = _NAMES.get(word.lower()) or next(iter(close_names(word, TYPES)), None)
    advice = f"did you mean {near}?" if near else f"there are {', '.join(TYPES)}"
    raise field.fault(at, f"{word!r} is no type; {advice}")


def _no_field(line: str, start: int) -> tuple[int, str]:
    """Return the position and the reason why the rest of a line is not a field."""
    at = len(line) - len(line[start:].lstrip())
    char = line[at : at + 1]
    reasons = {
        "": "a name has to stand here",
        "?": "every field is required; there are no optional ones in this form",
        **dict.fromkeys("{([<", "objects within objects are not part of this form"),
    }
    return at, reasons.get(char, f"{char!r} cannot stand here")


_FORM = "Write MODULE:NAME, as in shop.orders:Order."


class Model:
    """A Python model, and the name given by the user."""

    def __init__(self, name: str, adapter: Any) -> None:
        self.name = name
        self._adapter = adapter

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema that pydantic makes of the model. Raises ConfigError if there is none."""
        from pydantic.errors import PydanticUserError

        try:
            schema: dict[str, Any] = self._adapter.json_schema()
        except PydanticUserError as error:
            raise ConfigError(f"The model {self.name} has no JSON schema: {error.message}") from None
        return schema

    def faults(self, text: str) -> tuple[str, ...]:
        """Return the faults that the model and its validators find in a document; () if it is valid."""
        from pydantic import ValidationError

        try:
            self._adapter.validate_json(text)
        except ValidationError as error:
            return tuple(
                f"{shown(child('', *fault['loc']))}: {fault['msg']}, not {shortened(fault['input'])}"
                for fault in error.errors(include_url=False)
            )
        except Exception as error:  # exceptions of the user's validators
            return (f"the root: the model {self.name} raised {type(error).__name__}: {error}",)
        return ()


def load_model(name: str) -> Model:
    """Import `module:Model`, from the working directory first. Raises ConfigError."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{name!r} names no model.", hint=_FORM)
    _require_pydantic(name)
    return model_of(_attribute(name, module_name, attribute), name)


def model_of(model_class: Any, name: str = "") -> Model:
    """Return a class, or a list or union of classes, as a Model. ConfigError if pydantic rejects it."""
    name = name or getattr(model_class, "__name__", str(model_class))
    _require_pydantic(name)
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    marks = ("model_json_schema", "__dataclass_fields__", "__required_keys__")
    is_class = isinstance(model_class, type) and any(hasattr(model_class, mark) for mark in marks)
    if not is_class and get_origin(model_class) is None:  # which list[Order] has
        raise ConfigError(
            f"{name} is a {type(model_class).__name__}, but has to be a pydantic model, a dataclass, "
            "a TypedDict, or a list or union of them."
        )
    try:
        return Model(name, TypeAdapter(model_class))
    except PydanticUserError as error:
        raise ConfigError(f"pydantic cannot use the model {name}: {error.message}") from None


def _require_pydantic(name: str) -> None:
    try:
        import pydantic  # noqa: F401
    except ImportError:
        hint = "Install it: pip install pydantic."
        raise ConfigError(f"The model {name} needs pydantic, which is not installed.", hint=hint) from None


def _attribute(name: str, module_name: str, attribute: str) -> Any:
    sys.path.insert(0, folder := os.getcwd())
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            message = f"The module {module_name} needs {error.name}, which is not installed."
            raise ConfigError(message) from None
        hint = f"It is looked for in {os.getcwd()}, then among what is installed. {_FORM}"
        raise ConfigError(f"There is no module {error.name!r} for the model {name}.", hint=hint) from None
    except (Exception, SystemExit) as error:  # exceptions of the user's code
        message = f"{type(error).__name__}: {error}"
        raise ConfigError(f"The module {module_name} cannot be imported: {message}") from error
    finally:
        sys.path.remove(folder)
    for key in attribute.split("."):
        if not hasattr(value, key):
            raise ConfigError(f"There is no {key!r} in {module_name}, but the model is {name}.", hint=_FORM)
        value = getattr(value, key)
    return value


YAML = (".yaml", ".yml")
_SCHEMAS = (".json", *YAML)
_CONCISE = set(" ,:?[]{}()'\"")  # signs of the concise notation of schemas
_PATHS = ("/", "./", "../", "~/")  # how no field of the concise notation begins
_OBJECTS = ("structural_tag", "tools")


def named_file(kind: str, text: str, folder: Path = Path()) -> Path | None:
    """Return the file named by the value of an option; None if the value is the structure itself.

    A watermark's key is a file. So is a draft tree that is no shape. Tools and structural tags are files
    unless they begin with [ or {. A grammar without a colon or a newline is a file. A schema is a file if it
    ends in .json, .yaml or .yml, begins as a path, has a slash and is one word, or exists, unless it begins
    with { or is true or false. Relative names are relative to `folder`.
    """
    stripped = text.strip()
    path = folder / os.path.expanduser(stripped)
    if kind == "watermark_key":
        return path
    if kind == "draft_tree":
        return path if is_tree_file(text) else None
    if kind in ("grammar", "lark"):
        return path if not {":", "\n"} & set(text) else None
    if kind == "json_schema":
        is_json = stripped.startswith("{") or stripped in ("true", "false")
        return path if not is_json and (is_schema_name(text) or exists(path)) else None
    return path if kind in _OBJECTS and not stripped.startswith(("[", "{")) else None


def is_schema_name(text: str) -> bool:
    """Return whether a text names a schema file, by its ending or as a path."""
    stripped = text.strip()
    is_path = stripped.startswith(_PATHS) or ("/" in stripped and not _CONCISE & set(stripped))
    return (is_path or stripped.lower().endswith(_SCHEMAS)) and "\n" not in stripped


def exists(path: Path) -> bool:
    """Whether there is a file of this name; False for a text that cannot be a name."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, or not a name
        return False

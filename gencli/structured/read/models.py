"""Pydantic models, dataclasses and TypedDicts as schemas, and as a second check of documents.

Importing a model runs Python code of its module, so only the user may name one.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_origin

from gencli.errors import ConfigError
from gencli.structured.schema.pointers import child, shown
from gencli.structured.validate.messages import shortened

__all__ = ["Model", "load_model", "model_of"]

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
            found = error.errors(include_url=False)
            return tuple(f"{shown(child('', *fault['loc']))}: {_message(fault)}" for fault in found)
        except Exception as error:  # exceptions of the user's validators
            return (f"the root: the model {self.name} raised {type(error).__name__}: {error}",)
        return ()


def _message(fault: Any) -> str:
    return f"{fault['msg']}, not {shortened(fault['input'])}"


def load_model(name: str) -> Model:
    """Import `module:Model`, from the working directory first. Raises ConfigError."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{name!r} names no model.", hint=_FORM)
    _require_pydantic(name)
    return model_of(_attribute(name, module_name, attribute), name)


def model_of(found: Any, name: str = "") -> Model:
    """Return a class, or a list or union of classes, as a Model. ConfigError if pydantic rejects it."""
    name = name or getattr(found, "__name__", str(found))
    _require_pydantic(name)
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    if not _is_model(found):
        raise ConfigError(
            f"{name} is a {type(found).__name__}, but has to be a pydantic model, a dataclass, a TypedDict, "
            "or a list or union of them."
        )
    try:
        return Model(name, TypeAdapter(found))
    except PydanticUserError as error:
        raise ConfigError(f"pydantic cannot use the model {name}: {error.message}") from None


def _require_pydantic(name: str) -> None:
    try:
        import pydantic  # noqa: F401
    except ImportError:
        hint = "Install it: pip install pydantic."
        raise ConfigError(f"The model {name} needs pydantic, which is not installed.", hint=hint) from None


def _attribute(name: str, module_name: str, attribute: str) -> Any:
    try:
        with _working_directory_first():
            found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"The module {module_name} needs {error.name}, which is not installed."
            ) from None
        hint = f"It is looked for in {os.getcwd()}, then among what is installed. {_FORM}"
        raise ConfigError(f"There is no module {error.name!r} for the model {name}.", hint=hint) from None
    except (Exception, SystemExit) as error:  # exceptions of the user's code
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(f"The module {module_name} cannot be imported: {what}") from error
    for key in attribute.split("."):
        if not hasattr(found, key):
            raise ConfigError(f"There is no {key!r} in {module_name}, but the model is {name}.", hint=_FORM)
        found = getattr(found, key)
    return found


@contextmanager
def _working_directory_first() -> Iterator[None]:
    sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path.remove(os.getcwd())


def _is_model(found: Any) -> bool:
    if get_origin(found) is not None:  # such as list[Order]
        return True
    marks = ("model_json_schema", "__dataclass_fields__", "__required_keys__")
    return isinstance(found, type) and any(hasattr(found, mark) for mark in marks)

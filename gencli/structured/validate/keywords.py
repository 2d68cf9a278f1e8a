"""Keywords that jsonschema checks differently from the drafts, or not in bounded time.

Patterns follow ECMA-262 and can be interrupted. Numbers are decimals, so that 0.3 is a multiple of 0.1.
Values of enum and unique items are looked up in sets. Every keyword checks the time limit first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from fractions import Fraction
from typing import Any

from gencli.structured.regex.ecma_search import searches
from gencli.structured.schema.drafts import Draft

__all__ = ["canonical", "exact", "time_limit", "unique_items", "validator_class"]

_DEADLINE: ContextVar[float] = ContextVar("deadline")

_Keyword = Callable[[Any, Any, Any, Any], Iterable[Any] | None]


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Validations within the context raise TimeoutError after `seconds` seconds."""
    token = _DEADLINE.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def _left() -> float:
    left = _DEADLINE.get() - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def validator_class(draft: Draft) -> Any:
    """Return jsonschema's validator of a draft with the keywords of this module."""
    from jsonschema.validators import extend

    stock = draft.validator()
    ours: dict[str, _Keyword] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "unevaluatedProperties": _unevaluated_properties,
        "uniqueItems": unique_items,
        "multipleOf": _multiple_of,
        "enum": _enum(),
        "required": _required,
    }
    timed = {name: _timed(ours.get(name, keyword)) for name, keyword in stock.VALIDATORS.items() if keyword}
    checker = stock.TYPE_CHECKER
    if draft.name != "4":  # in draft 4, 1.0 is no integer
        checker = checker.redefine("integer", lambda _, value: _is_integer(value))
    return extend(stock, timed, type_checker=checker)  # type: ignore[no-untyped-call]


def _timed(keyword: _Keyword) -> _Keyword:
    def run(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[Any] | None:
        _left()
        return keyword(validator, value, instance, schema)

    return run


def canonical(value: Any) -> Any:
    """Return a hashable value that is equal for equal JSON values: for 1 and 1.0, but not for 1 and true."""
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, list):
        return (list, *map(canonical, value))
    if isinstance(value, dict):
        return (dict, frozenset((key, canonical(below)) for key, below in value.items()))
    return value


def _is_integer(value: Any) -> bool:
    if isinstance(value, float | Decimal):
        return value == int(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not searches(pattern, instance, _left()):
        yield _error("does not match")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, below in patterns.items():
            for key in instance:
                if searches(pattern, key, _left()):
                    yield from validator.descend(instance[key], below, path=key, schema_path=pattern)


def _additional_properties(validator: Any, rest: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        named = _named(instance, schema)
        for key in (key for key in instance if key not in named):
            yield from validator.descend(instance[key], rest, path=key)


def _named(instance: Any, schema: Any) -> set[str]:
    """Return the keys to which properties and patternProperties of a schema apply."""
    patterns = schema.get("patternProperties", ())
    named = set(instance) & set(schema.get("properties", ()))
    return named | {key for key in instance if any(searches(pattern, key, _left()) for pattern in patterns)}


def _unevaluated_properties(validator: Any, rest: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        here = {keyword: value for keyword, value in schema.items() if keyword != "unevaluatedProperties"}
        evaluated = _evaluated(validator, instance, here)
        for key in (key for key in instance if key not in evaluated):
            yield from validator.descend(instance[key], rest, path=key)


def _evaluated(validator: Any, instance: Any, schema: Any) -> set[str]:
    """Return the keys evaluated by a schema that the object satisfies."""
    _left()
    if not isinstance(schema, dict):
        return set()
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return set(instance)
    found = _named(instance, schema)
    for below, resolver in _in_place(validator, instance, schema):
        inner = validator.evolve(schema=below, _resolver=resolver)
        if inner.is_valid(instance):
            found |= _evaluated(inner, instance, below)
    return found


def _in_place(validator: Any, instance: Any, schema: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (schema, resolver) of the subschemas that apply to the same object."""
    from referencing.jsonschema import lookup_recursive_ref

    resolver = validator._resolver
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema:
            target = resolver.lookup(schema[keyword])
            yield target.contents, target.resolver
    if "$recursiveRef" in schema:
        target = lookup_recursive_ref(resolver)
        yield target.contents, target.resolver
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from ((below, resolver) for below in schema.get(keyword, ()))
    for key, below in schema.get("dependentSchemas", {}).items():
        if key in instance:
            yield below, resolver
    if "if" in schema:
        is_met = validator.evolve(schema=schema["if"]).is_valid(instance)
        yield schema["if"], resolver
        yield schema.get("then" if is_met else "else", True), resolver


def _required(validator: Any, keys: Any, instance: Any, schema: Any) -> Iterator[Any]:
    missing = [key for key in keys if key not in instance] if isinstance(instance, dict) else []
    if missing:
        yield _error(f"{', '.join(map(repr, missing))} {'is' if len(missing) == 1 else 'are'} missing")


def unique_items(validator: Any, is_unique: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Check uniqueItems in linear time."""
    if is_unique and isinstance(instance, list) and len(set(map(canonical, instance))) < len(instance):
        yield _error("has equal items")


def _multiple_of(validator: Any, step: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "number") and (exact(instance) / exact(step)).denominator != 1:
        yield _error("is no multiple")


def exact(number: int | float | Decimal) -> Fraction:
    """Return the exact value of the number as written in decimal."""
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def _enum() -> _Keyword:
    known: dict[int, set[Any]] = {}  # by the id of the list, which the validator's schema keeps alive

    def enum(validator: Any, values: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if id(values) not in known:
            known[id(values)] = set(map(canonical, values))
        if canonical(instance) not in known[id(values)]:
            yield _error("is none of them")

    return enum

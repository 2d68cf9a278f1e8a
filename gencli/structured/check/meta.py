"""Values of keywords checked against a draft's meta-schema, one keyword at a time.

The meta-schema is not applied to subschemas, so the cost does not grow with depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from gencli.structured.schema.drafts import Draft
from gencli.structured.schema.pointers import child
from gencli.structured.validate.keywords import unique_items
from gencli.structured.validate.messages import message, shortened

__all__ = ["is_value_of", "meta_faults"]

_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_MAX_KEPT = 100  # characters of a value up to which its result is cached


def meta_faults(schema: dict[str, Any], draft: Draft) -> Iterator[tuple[str, str]]:
    """Yield (relative JSON pointer, fault) of the keywords of one schema, without its subschemas."""
    described = draft.described()
    for keyword, value in schema.items():
        if keyword not in described:
            continue
        is_small = isinstance(value, int) or (isinstance(value, str) and len(value) < _MAX_KEPT)
        yield from _small(draft, keyword, repr(value), value) if is_small else _faults(draft, keyword, value)
    for bound in ("minimum", "maximum") if draft.name == "4" else ():
        exclusive = f"exclusive{bound.capitalize()}"
        if exclusive in schema and bound not in schema:
            yield child("", exclusive), f"it stands without {bound}, which it says something of"


@lru_cache(maxsize=4096)
def _small(draft: Draft, keyword: str, written: str, value: Any) -> list[tuple[str, str]]:
    return _faults(draft, keyword, value)  # `written` is in the cache key because 1 == True


def is_value_of(keyword: str, value: Any, draft: Draft) -> bool:
    """Whether the draft's meta-schema allows the value for this keyword."""
    return not _faults(draft, keyword, value)


def _faults(draft: Draft, keyword: str, value: Any) -> list[tuple[str, str]]:
    errors = list(_judge(draft, keyword).iter_errors(value))
    if keyword == "type" and errors:
        return [("/type", f"{shortened(value)} is no type; there are {', '.join(_TYPES)}, and lists of them")]
    return [(child("", keyword, *error.absolute_path), message(error)) for error in errors]


@cache
def _judge(draft: Draft, keyword: str) -> Any:
    from jsonschema.validators import extend
    from referencing import Registry

    stock = draft.validator()
    kinds = ["object"] if draft.name == "4" else ["object", "boolean"]

    def schema_below(validator: Any, ref: Any, value: Any, schema: Any) -> Any:
        return stock.VALIDATORS["type"](validator, kinds, value, schema)

    def reference(validator: Any, ref: Any, value: Any, schema: Any) -> Any:
        judge = schema_below if ref == "#" else stock.VALIDATORS["$ref"]
        return judge(validator, ref, value, schema)

    ours = {
        "$ref": reference,
        "$dynamicRef": schema_below,
        "$recursiveRef": schema_below,
        "uniqueItems": unique_items,
    }
    judge = extend(stock, ours)  # type: ignore[no-untyped-call]
    return judge({"$ref": draft.described()[keyword]}, registry=Registry())

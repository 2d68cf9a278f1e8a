"""What a draft's meta-schema says against a schema: keyword by keyword, so that depth costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from gencli.structured.schema.drafts import DRAFTS, Draft
from gencli.structured.schema.keywords import unique_items
from gencli.structured.schema.messages import message, shortened
from gencli.structured.schema.pointers import child

__all__ = ["likely_keyword", "meta_faults"]

# Remarks that other tools understand; they are no misspellings.
_REMARKS = frozenset(
    "$comment defaultSnippets deprecationMessage discriminator doNotSuggest enumDescriptions enumNames"
    " errorMessage example externalDocs markdownDescription markdownEnumDescriptions meta note notes nullable"
    " optional options propertyOrder tags value values xml".split()
)
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_MIN_LENGTH = 4  # of a keyword that a letter more or less can be a misspelling of
_MAX_KEPT = 100  # characters of a value whose judgement is kept


def meta_faults(schema: dict[str, Any], draft: Draft) -> Iterator[tuple[str, str]]:
    """(pointer from here, what is wrong) of the keywords of one schema, not of those below."""
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
    return _faults(draft, keyword, value)  # `written` tells 1 from true


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


@lru_cache(maxsize=4096)
def likely_keyword(word: str) -> str | None:
    """The keyword that a word is one letter away from, unless it is one, or a remark."""
    known = _keywords()
    if len(word) > known.longest + 1 or word in known.all or word in _REMARKS:
        return None
    if word.startswith(("x-", "X-")):
        return None
    near = {keyword for form in _forms(word) for keyword in known.by_form.get(form, ())}
    near = {keyword for keyword in near if _is_near(word, keyword) or _is_near(word, _plural(keyword))}
    return min(near, key=_rank, default=None)


@dataclass(frozen=True, slots=True)
class _Keywords:
    """All drafts' keywords, and which of them have a form: so that a word is not compared with all."""

    all: frozenset[str]
    longest: int
    by_form: dict[str, list[str]]


@cache
def _keywords() -> _Keywords:
    found = frozenset(keyword for draft in DRAFTS for keyword in draft.described())
    by_form: dict[str, list[str]] = {}
    for keyword in found:
        for form in _forms(keyword) | _forms(_plural(keyword)) | {keyword.removeprefix("$")}:
            by_form.setdefault(form, []).append(keyword)
    return _Keywords(found, max(map(len, found)), by_form)


def _forms(word: str) -> set[str]:
    """What two words share one of if they are a letter apart: the word, in small, and short of a letter."""
    return {word, word.lower(), *(word[:at] + word[at + 1 :] for at in range(len(word)))}


def _plural(keyword: str) -> str:
    """A keyword as many write it: propertys."""
    return keyword.removesuffix("ies") + "ys" if keyword.endswith("ies") else keyword


def _rank(keyword: str) -> tuple[int, str]:
    return len(keyword), keyword


def _is_near(word: str, keyword: str) -> bool:
    """One letter more, less, other or changed places, or other case, or without its dollar."""
    if word.lower() == keyword.lower() or word == keyword.removeprefix("$"):
        return True
    at = next((n for n, pair in enumerate(zip(word, keyword, strict=False)) if pair[0] != pair[1]), -1)
    at = min(len(word), len(keyword)) if at < 0 else at
    if word[at : at + 2] == keyword[at : at + 2][::-1] and word[at + 2 :] == keyword[at + 2 :]:
        return len(word) == len(keyword)
    if len(keyword) < _MIN_LENGTH:
        return False
    rest, wanted = word[at:], keyword[at:]
    return rest[1:] == wanted[1:] or rest[1:] == wanted or rest == wanted[1:]

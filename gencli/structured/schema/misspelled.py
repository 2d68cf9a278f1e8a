"""Unknown keywords that look like misspelled ones, and which of those change what a schema accepts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from gencli.structured.schema.drafts import DRAFTS, Draft
from gencli.structured.schema.meta import is_value_of

__all__ = ["is_comment", "likely_keywords", "misspelled"]

# Remarks that other tools understand; they are no misspellings.
_REMARKS = frozenset(
    "$comment defaultSnippets deprecationMessage discriminator doNotSuggest enumDescriptions enumNames"
    " errorMessage example externalDocs markdownDescription markdownEnumDescriptions meta note notes nullable"
    " optional options propertyOrder tags value values xml".split()
)
_MIN_LENGTH = 4  # of a keyword that a letter more or less can be a misspelling of
# Values with which a keyword accepts everything.
_IDLE: dict[str, Any] = {
    **dict.fromkeys(("minContains", "minItems", "minLength", "minProperties"), 0),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "uniqueItems"), False),
    **{key: {} for key in ("dependentRequired", "dependentSchemas", "patternProperties", "properties")},
    **{key: [] for key in ("prefixItems", "required")},
}
_APPLY_ONE = frozenset(
    "additionalItems additionalProperties contains else if items propertyNames then unevaluatedItems"
    " unevaluatedProperties".split()
)


def is_comment(keyword: str) -> bool:
    """Whether a name is one that no draft will ever have: x-NAME, X-NAME, _NAME."""
    return keyword.startswith(("x-", "X-", "_"))


def misspelled(word: str, value: Any, draft: Draft) -> str | None:
    """The keyword that an unknown word most likely should have been, if that would change what is accepted.

    The word has to be a letter away from the keyword, and the value one that the draft's meta-schema takes
    for it and with which it refuses something.
    """
    found = (
        keyword
        for keyword in likely_keywords(word)
        if keyword in draft.judged() & draft.described().keys() and is_value_of(keyword, value, draft)
    )
    return next((keyword for keyword in found if not _is_idle(keyword, value)), None)


def _is_idle(keyword: str, value: Any) -> bool:
    if keyword in _APPLY_ONE:
        return value is True or value == {}
    idle = _IDLE.get(keyword)
    return type(value) is type(idle) and value == idle  # 0 is equal to false


@lru_cache(maxsize=4096)
def likely_keywords(word: str) -> tuple[str, ...]:
    """The keywords that a word is one letter away from, the shortest first; none of one, or of a remark."""
    known = _keywords()
    if len(word) > known.longest + 1 or word in known.all or word in _REMARKS or is_comment(word):
        return ()
    near = {keyword for form in _forms(word) for keyword in known.by_form.get(form, ())}
    near = {keyword for keyword in near if _is_near(word, keyword) or _is_near(word, _plural(keyword))}
    return tuple(sorted(near, key=_rank))


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

"""Unknown keywords that look misspelled, and which of them would change the valid values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from gencli.structured.check.meta import is_value_of
from gencli.structured.schema.drafts import DRAFTS, Draft
from gencli.structured.schema.groups import SINGLE

__all__ = ["is_comment", "likely_keywords", "misspelled"]

# Annotations of other tools, which are not misspellings.
_REMARKS = frozenset(
    "$comment defaultSnippets deprecationMessage discriminator doNotSuggest enumDescriptions enumNames"
    " errorMessage example externalDocs markdownDescription markdownEnumDescriptions meta note notes nullable"
    " optional options propertyOrder tags value values xml".split()
)
_MIN_LENGTH = 4  # shortest keyword that a word with one letter more or less may mean
# Values with which a keyword allows every value.
_IDLE: dict[str, Any] = {
    **dict.fromkeys(("minContains", "minItems", "minLength", "minProperties"), 0),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "uniqueItems"), False),
    **{key: {} for key in ("dependentRequired", "dependentSchemas", "patternProperties", "properties")},
    **{key: [] for key in ("prefixItems", "required")},
}
_APPLY_ONE = SINGLE - {"not"}


def is_comment(keyword: str) -> bool:
    """Whether a name is reserved for comments: x-NAME, X-NAME, _NAME."""
    return keyword.startswith(("x-", "X-", "_"))


def misspelled(word: str, value: Any, draft: Draft) -> str | None:
    """Return the keyword that an unknown word probably means, if it would change which values are valid.

    The word has edit distance 1 from the keyword. The draft's meta-schema allows its value for the keyword,
    and with it the keyword rejects some value.
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
    return type(value) is type(idle) and value == idle  # because 0 == False


@lru_cache(maxsize=4096)
def likely_keywords(word: str) -> tuple[str, ...]:
    """Return the keywords at edit distance 1 from a word, shortest first.

    Empty for a keyword, and for a known annotation of another tool.
    """
    known = _keywords()
    if len(word) > known.longest + 1 or word in known.all or word in _REMARKS or is_comment(word):
        return ()
    near = {keyword for form in _forms(word) for keyword in known.by_form.get(form, ())}
    near = {keyword for keyword in near if _is_near(word, keyword) or _is_near(word, _plural(keyword))}
    return tuple(sorted(near, key=_rank))


@dataclass(frozen=True, slots=True)
class _Keywords:
    """The keywords of all drafts, indexed by form, so that a word is not compared with each."""

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
    """Return the forms of a word. Two words at edit distance 1 share a form.

    Forms are the word, the word in lower case, and the word without one of its letters.
    """
    return {word, word.lower(), *(word[:at] + word[at + 1 :] for at in range(len(word)))}


def _plural(keyword: str) -> str:
    """Return a keyword in -ies with its common misspelling: propertys."""
    return keyword.removesuffix("ies") + "ys" if keyword.endswith("ies") else keyword


def _rank(keyword: str) -> tuple[int, str]:
    return len(keyword), keyword


def _is_near(word: str, keyword: str) -> bool:
    """Whether a word differs by one letter, by swapped letters, by case, or by a missing dollar sign."""
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

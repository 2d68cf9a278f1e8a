"""Validation of a value against its schema, with a time limit and without fetching anything; the formats
of JSON Schema as tests of a string. Patterns follow ECMA-262 and can be interrupted, numbers are
decimals, so that 0.3 is a multiple of 0.1; values of enum and unique items are looked up in sets. Other
formats are not checked.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import partial, reduce
from itertools import islice
from typing import Any

from gencli.structured.ecma_regex import check_pattern, searches
from gencli.structured.json_schema import Draft, draft_of, walk, with_published
from gencli.structured.schema_errors import NOTHING, Deadline, descend, location, message, shown
from processors.request_values import keys_of

MAX_SECONDS = 10.0  # seconds for one value
MAX_FAULTS = 10  # limit of reported faults


class Validator:
    """Checks values against a schema that `check_schema` has passed, by the rules of its draft.

    `formats`: `format` is checked for the formats in formats.FORMATS; otherwise it is an annotation.
    """

    def __init__(self, schema: Any, formats: bool = False, *, max_seconds: float = MAX_SECONDS) -> None:
        from referencing import Registry

        schema = with_published(schema)
        draft = draft_of(schema)
        self._max_seconds = max_seconds
        self._validator = validator_class(draft)(
            _prepared(schema), registry=Registry(), format_checker=_format_checker() if formats else None
        )

    def faults(self, value: Any) -> tuple[str, ...]:
        """Return the faults of the value, each with its JSON pointer; () if it is valid.

        A value that cannot be checked in time, or is nested too deeply, has a fault.
        """
        token = _DEADLINE.set(Deadline.after(self._max_seconds))
        try:
            errors = list(islice(self._validator.iter_errors(value), MAX_FAULTS))
            return tuple(f"{location(error)}: {message(error)}" for error in errors)
        except TimeoutError:
            return (f"{shown('')}: checking it against the schema took more than {self._max_seconds:g} s",)
        except RecursionError:
            return (f"{shown('')}: it is nested too deep to be checked against the schema",)
        finally:
            _DEADLINE.reset(token)


def _prepared(schema: Any) -> Any:
    """Return a copy for which jsonschema reports every place and uses only the given class."""
    root: Any = {"": json.loads(json.dumps(schema))}
    for pointer, here in list(walk(root[""])):
        if isinstance(here, dict):
            here.pop("$schema", None)  # jsonschema would switch to its own class
        elif here is False:
            *way, last = ("", *keys_of(pointer))
            holder: Any = reduce(descend, way, root)
            # jsonschema reports no place for `false`
            holder[int(last) if isinstance(holder, list) else last] = NOTHING
    return root[""]


def _format_checker() -> Any:
    from jsonschema import FormatChecker

    def passes(test: Callable[[str], bool], value: object) -> bool:
        return not isinstance(value, str) or test(value)

    checker = FormatChecker(formats=())
    for name, test in FORMATS.items():
        checker.checks(name, raises=ValueError)(partial(passes, test))
    return checker


_DEADLINE: ContextVar[Deadline] = ContextVar("deadline")  # of the running validation

_Keyword = Callable[[Any, Any, Any, Any], Iterable[Any] | None]


def _left() -> float:
    if not (left := _DEADLINE.get().left):
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
        checker = checker.redefine("integer", _is_integer)
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


def _is_integer(_: Any, value: Any) -> bool:
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


def _additional_properties(validator: Any, below: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        named = _named(instance, schema)
        for key in (key for key in instance if key not in named):
            yield from validator.descend(instance[key], below, path=key)


def _named(instance: Any, schema: Any) -> set[str]:
    # The keys to which properties and patternProperties of a schema apply.
    patterns = schema.get("patternProperties", ())
    named = set(instance) & set(schema.get("properties", ()))
    return named | {key for key in instance if any(searches(pattern, key, _left()) for pattern in patterns)}


def _unevaluated_properties(validator: Any, below: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        here = {keyword: value for keyword, value in schema.items() if keyword != "unevaluatedProperties"}
        evaluated = _evaluated(validator, instance, here)
        for key in (key for key in instance if key not in evaluated):
            yield from validator.descend(instance[key], below, path=key)


def _evaluated(validator: Any, instance: Any, schema: Any) -> set[str]:
    """Return the keys evaluated by a schema that the object satisfies."""
    _left()
    if not isinstance(schema, dict):
        return set()
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return set(instance)
    keys = _named(instance, schema)
    for below, resolver in _in_place(validator, instance, schema):
        inner = validator.evolve(schema=below, _resolver=resolver)
        if inner.is_valid(instance):
            keys |= _evaluated(inner, instance, below)
    return keys


def _in_place(validator: Any, instance: Any, schema: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (schema, resolver) of the subschemas that apply to the same object."""
    from referencing.jsonschema import lookup_recursive_ref

    resolver = validator._resolver
    targets = [resolver.lookup(schema[keyword]) for keyword in ("$ref", "$dynamicRef") if keyword in schema]
    targets += [lookup_recursive_ref(resolver)] if "$recursiveRef" in schema else []
    yield from ((target.contents, target.resolver) for target in targets)
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from ((below, resolver) for below in schema.get(keyword, ()))
    dependent = schema.get("dependentSchemas", {})
    yield from ((dependent[key], resolver) for key in dependent if key in instance)
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
    values_of: dict[int, set[Any]] = {}  # by the id of the list, which the validator's schema keeps alive

    def enum(validator: Any, values: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if id(values) not in values_of:
            values_of[id(values)] = set(map(canonical, values))
        if canonical(instance) not in values_of[id(values)]:
            yield _error("is none of them")

    return enum


_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII)
_CLOCK = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
_DAYS = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)"
_DURATION = re.compile(rf"P(?:\d+W|{_DAYS}(?:{_CLOCK})?|{_CLOCK})", re.ASCII)
_LABEL = r"(?:(?!..--)|(?=xn--))[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*|\"[ !#-~]+\"")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
# RFC 3987 beyond ASCII: all planes without their last two characters; private ones in a query.
_BEYOND = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef" + "".join(
    f"{chr(plane << 16 | (0x1000 if plane == 14 else 0))}-{chr(plane << 16 | 0xFFFD)}"
    for plane in range(1, 15)
)
_PRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"


def _uris(more: str = "", private: str = "") -> re.Pattern[str]:
    """Return the grammar of RFC 3986, with more letters where letters are allowed."""
    name = rf"[A-Za-z0-9._~!$&'()*+,;={more}-]|%[0-9A-Fa-f]{{2}}"
    sign = rf"[:@/]|{name}"
    host = rf"(?:\[(?P<ipv6>[^\]]*)\]|(?:{name})*)(?::[0-9]*)?(?=[/?#]|$)"
    return re.compile(
        rf"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*:)?(?P<authority>//(?:(?:{name}|:)*@)?{host})?"
        rf"(?P<path>(?:{sign})*)(?:\?(?:{sign}|[?{private}])*)?(?:#(?:{sign}|\?)*)?"
    )


_URI, _IRI = _uris(), _uris(_BEYOND, _PRIVATE)
_MORE_LOCAL = re.compile(
    _LOCAL.pattern.replace("~-]", "~\u0080-\U0010ffff-]").replace("!#-~]", "!#-~\u0080-\U0010ffff]")
)
# RFC 6570, with the apostrophe of its erratum 6937.
_VARIABLE = r"(?:\w|%[0-9A-Fa-f]{2})+(?:\.(?:\w|%[0-9A-Fa-f]{2})+)*(?:\*|:[1-9][0-9]{0,3})?"
_TEMPLATE = re.compile(
    rf"(?:[!#$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]|[^\x00-\xa0]|%[0-9A-Fa-f]{{2}}"
    rf"|\{{[+#./;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*\}})*".replace(r"\w", "[A-Za-z0-9_]")
)
_RELATIVE = re.compile(r"(?:0|[1-9][0-9]*)(#|(?:/.*)?)", re.DOTALL)


def _date(text: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return False
    date(*map(int, text.split("-")))
    return True


def _time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    hour, minute, second, hours, minutes = (int(match[n] or 0) for n in (1, 2, 3, 5, 6))
    if max(hour, hours) > 23 or max(minute, minutes) > 59 or second > 60:
        return False
    sign = -1 if match[4] == "+" else 1
    utc = (hour * 60 + minute + sign * (hours * 60 + minutes)) % (24 * 60)
    return second < 60 or utc == 24 * 60 - 1  # a leap second ends a day


def _email(text: str) -> bool:
    local, _, host = text.rpartition("@")
    if not _LOCAL.fullmatch(local):
        return False
    if host.startswith("[") and host.endswith("]"):
        return bool(ipaddress.ip_address(host[1:-1].removeprefix("IPv6:")))
    return bool(_HOST.fullmatch(host))


def _ipv6(text: str) -> bool:
    return bool(ipaddress.IPv6Address(text)) and "%" not in text


def _idn_hostname(text: str) -> bool:
    import idna

    return text[-1:] != "." and bool(idna.encode(text, strict=True))


def _idn_email(text: str) -> bool:
    local, _, host = text.rpartition("@")
    if host.startswith("["):
        return _email(f"a@{host}") and bool(_MORE_LOCAL.fullmatch(local))
    return bool(_MORE_LOCAL.fullmatch(local)) and _idn_hostname(host)


def _reference(text: str, form: re.Pattern[str] = _URI) -> bool:
    match = form.fullmatch(text)
    if match is None or (not match["scheme"] and ":" in match["path"].split("/")[0]):
        return False
    if not match["authority"] and match["path"].startswith("//"):
        return False
    return match["ipv6"] is None or match["ipv6"][:1] in "vV" or _ipv6(match["ipv6"])


def _uri(text: str, form: re.Pattern[str] = _URI) -> bool:
    match = form.match(text)
    return match is not None and match["scheme"] is not None and _reference(text, form)


def _relative_pointer(text: str) -> bool:
    match = _RELATIVE.fullmatch(text)
    return match is not None and (match[1] == "#" or keys_of(match[1]) is not None)


def _regex(text: str) -> bool:
    check_pattern(text)
    return True


# A test may raise ValueError instead of returning False.
FORMATS: dict[str, Callable[[str], bool]] = {
    "date": _date,
    "date-time": lambda text: text[10:11] in ("T", "t") and _date(text[:10]) and _time(text[11:]),
    "duration": lambda text: bool(_DURATION.fullmatch(text)),
    "email": _email,
    "hostname": lambda text: bool(_HOST.fullmatch(text)),
    "idn-email": _idn_email,
    "idn-hostname": _idn_hostname,
    "ipv4": lambda text: bool(ipaddress.IPv4Address(text)),
    "ipv6": _ipv6,
    "iri": lambda text: _uri(text, _IRI),
    "iri-reference": lambda text: _reference(text, _IRI),
    "json-pointer": lambda text: keys_of(text) is not None,
    "regex": _regex,
    "relative-json-pointer": _relative_pointer,
    "time": _time,
    "uri": _uri,
    "uri-reference": _reference,
    "uri-template": lambda text: bool(_TEMPLATE.fullmatch(text)),
    "uuid": lambda text: bool(_UUID.fullmatch(text)),
}

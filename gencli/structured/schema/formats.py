"""What the formats of JSON Schema ask of a string. A format that is not here is not checked."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import date

from gencli.structured.schema.patterns import check_pattern
from gencli.structured.schema.pointers import keys_of

__all__ = ["FORMATS"]

_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII)
_CLOCK = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
_DAYS = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)"
_DURATION = re.compile(rf"P(?:\d+W|{_DAYS}(?:{_CLOCK})?|{_CLOCK})", re.ASCII)
_LABEL = r"(?:(?!..--)|(?=xn--))[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*|\"[ !#-~]+\"")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_PCHAR = r"[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}"
_USER = r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@"
_NAME = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
_AUTHORITY = rf"//(?:{_USER})?(?:\[(?P<ipv6>[^\]]*)\]|{_NAME})(?::[0-9]*)?(?=[/?#]|$)"
_URI = re.compile(
    rf"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*:)?(?P<authority>{_AUTHORITY})?(?P<path>(?:{_PCHAR})*)"
    rf"(?:\?(?:{_PCHAR}|\?)*)?(?:#(?:{_PCHAR}|\?)*)?"
)
_RELATIVE = re.compile(r"(?:0|[1-9][0-9]*)(#|(?:/.*)?)", re.DOTALL)


def _date(text: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return False
    date(*map(int, text.split("-")))
    return True


def _time(text: str) -> bool:
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    hour, minute, second = (int(found[n]) for n in (1, 2, 3))
    away = [int(found[n] or 0) for n in (5, 6)]
    if hour > 23 or minute > 59 or second > 60 or away[0] > 23 or away[1] > 59:
        return False
    sign = -1 if found[4] == "+" else 1
    utc = (hour * 60 + minute + sign * (away[0] * 60 + away[1])) % (24 * 60)
    return second < 60 or utc == 24 * 60 - 1  # a leap second ends a day


def _date_time(text: str) -> bool:
    return text[10:11] in ("T", "t") and _date(text[:10]) and _time(text[11:])


def _email(text: str) -> bool:
    local, _, host = text.rpartition("@")
    if not _LOCAL.fullmatch(local):
        return False
    if host.startswith("[") and host.endswith("]"):
        return bool(ipaddress.ip_address(host[1:-1].removeprefix("IPv6:")))
    return bool(_HOST.fullmatch(host))


def _ipv6(text: str) -> bool:
    return bool(ipaddress.IPv6Address(text)) and "%" not in text


def _reference(text: str) -> bool:
    found = _URI.fullmatch(text)
    if found is None or (not found["scheme"] and ":" in found["path"].split("/")[0]):
        return False
    if not found["authority"] and found["path"].startswith("//"):
        return False
    return found["ipv6"] is None or found["ipv6"][:1] in "vV" or _ipv6(found["ipv6"])


def _uri(text: str) -> bool:
    found = _URI.match(text)
    return found is not None and found["scheme"] is not None and _reference(text)


def _pointer(text: str) -> bool:
    keys_of(text)
    return True


def _relative_pointer(text: str) -> bool:
    found = _RELATIVE.fullmatch(text)
    return found is not None and (found[1] == "#" or _pointer(found[1]))


def _regex(text: str) -> bool:
    check_pattern(text)
    return True


# Each may raise ValueError for no.
FORMATS: dict[str, Callable[[str], bool]] = {
    "date": _date,
    "date-time": _date_time,
    "duration": lambda text: bool(_DURATION.fullmatch(text)),
    "email": _email,
    "hostname": lambda text: bool(_HOST.fullmatch(text)),
    "ipv4": lambda text: bool(ipaddress.IPv4Address(text)),
    "ipv6": _ipv6,
    "json-pointer": _pointer,
    "regex": _regex,
    "relative-json-pointer": _relative_pointer,
    "time": _time,
    "uri": _uri,
    "uri-reference": _reference,
    "uuid": lambda text: bool(_UUID.fullmatch(text)),
}

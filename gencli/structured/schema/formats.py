"""The formats of JSON Schema as tests of a string. Other formats are not checked."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import date

from gencli.structured.regex.ecma_search import check_pattern
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


def _idn_hostname(text: str) -> bool:
    import idna

    return text[-1:] != "." and bool(idna.encode(text, strict=True))


def _idn_email(text: str) -> bool:
    local, _, host = text.rpartition("@")
    if host.startswith("["):
        return _email(f"a@{host}") and bool(_MORE_LOCAL.fullmatch(local))
    return bool(_MORE_LOCAL.fullmatch(local)) and _idn_hostname(host)


def _reference(text: str, form: re.Pattern[str] = _URI) -> bool:
    found = form.fullmatch(text)
    if found is None or (not found["scheme"] and ":" in found["path"].split("/")[0]):
        return False
    if not found["authority"] and found["path"].startswith("//"):
        return False
    return found["ipv6"] is None or found["ipv6"][:1] in "vV" or _ipv6(found["ipv6"])


def _uri(text: str, form: re.Pattern[str] = _URI) -> bool:
    found = form.match(text)
    return found is not None and found["scheme"] is not None and _reference(text, form)


def _pointer(text: str) -> bool:
    keys_of(text)
    return True


def _relative_pointer(text: str) -> bool:
    found = _RELATIVE.fullmatch(text)
    return found is not None and (found[1] == "#" or _pointer(found[1]))


def _regex(text: str) -> bool:
    check_pattern(text)
    return True


# A test may raise ValueError instead of returning False.
FORMATS: dict[str, Callable[[str], bool]] = {
    "date": _date,
    "date-time": _date_time,
    "duration": lambda text: bool(_DURATION.fullmatch(text)),
    "email": _email,
    "hostname": lambda text: bool(_HOST.fullmatch(text)),
    "idn-email": _idn_email,
    "idn-hostname": _idn_hostname,
    "ipv4": lambda text: bool(ipaddress.IPv4Address(text)),
    "ipv6": _ipv6,
    "iri": lambda text: _uri(text, _IRI),
    "iri-reference": lambda text: _reference(text, _IRI),
    "json-pointer": _pointer,
    "regex": _regex,
    "relative-json-pointer": _relative_pointer,
    "time": _time,
    "uri": _uri,
    "uri-reference": _reference,
    "uri-template": lambda text: bool(_TEMPLATE.fullmatch(text)),
    "uuid": lambda text: bool(_UUID.fullmatch(text)),
}

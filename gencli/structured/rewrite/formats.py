"""Formats as patterns, if the grammar of the format is regular and short.

Sources: RFC 6901 (JSON pointer), the draft of relative JSON pointers, RFC 3986 (URI reference), RFC 6531
(mail addresses, a safe subset), RFC 791 and 4291 (IP addresses), RFC 3339 (dates and times, without leap
seconds), RFC 1123 (host names, without those reserved for Punycode).
"""

from __future__ import annotations

# Nested repetitions are avoided where possible: xgrammar 0.2.8 reads some of them wrongly.
__all__ = ["HOST_LENGTH", "LENGTHS", "PATTERNS"]

HOST_LENGTH = 253
# Maximum lengths of texts in formats without one: RFC 5321 for mail; for web addresses the limit of browsers
# and servers, so that no real one is cut; a duration with nine digits in each place.
LENGTHS = {
    **dict.fromkeys(("email", "idn-email"), 254),
    **dict.fromkeys(("uri", "uri-reference", "json-pointer", "relative-json-pointer"), 2_048),
    "duration": 63,
}

_POINTER = r"(?:/(?:[^/~]|~[01])*)*"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_H = "[0-9A-Fa-f]{1,4}"
_URI = r"(?:[A-Za-z0-9_.~!$&'()*+,;=\-]|%[0-9A-Fa-f]{2})"
_SIGN = rf"(?:[:@]|{_URI})"
_HOST = rf"//(?:(?:{_URI}|:)*@)?{_URI}*(?::[0-9]*)?(?:/{_SIGN}*)*"
_PATH = rf"(?:{_HOST}|/(?:{_SIGN}+(?:/{_SIGN}*)*)?)"
_TAIL = rf"(?:\?(?:[/?]|{_SIGN})*)?(?:#(?:[/?]|{_SIGN})*)?"
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DATE = f"(?:{_YEAR}-{_DAY}|{_LEAP}-02-29)"
_HOUR = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR}:[0-5][0-9](?:\.[0-9]{{1,9}}|)(?:Z|[+\-]{_HOUR})"  # nanoseconds
_L, _M = "[A-Za-z0-9]", r"[A-Za-z0-9\-]"
_LABEL = f"(?:{_L}|{_L}{_L}|{_L}{_M}{_L}|{_L}{_M}{_M}{_L}|{_L}{_M}(?:{_L}{_M}|-{_L}){_M}{{0,58}}{_L})"
# Of host names beyond ASCII only those with short Latin labels, which are certainly valid.
_WORD = f"(?:{_LABEL}|[a-z0-9ß-öø-ÿ]{{1,16}})"
_LOCAL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u00a1-\ud7ff\-]"


_IPV4 = r"\.".join([_BYTE] * 4)
_LAST = f"(?:{_H}:{_H}|{_IPV4})"  # the last 32 bits


def _ipv6() -> str:
    """Return the nine forms of RFC 3986: eight groups, or fewer around one ::."""
    forms = [f"(?:{_H}:){{6}}{_LAST}", f"::(?:{_H}:){{5}}{_LAST}"]
    for most in range(7):
        before = f"(?:{_H}(?::{_H}){{0,{most}}})?" if most else f"(?:{_H})?"
        after = [f"(?:{_H}:){{{4 - most}}}{_LAST}"] if most < 4 else [_LAST, _H, ""][most - 4 : most - 3]
        forms.append(f"{before}::{after[0]}")
    return "|".join(forms)


PATTERNS: dict[str, str] = {
    "json-pointer": f"^{_POINTER}$",
    "relative-json-pointer": f"^(?:0|[1-9][0-9]*)(?:#|{_POINTER})$",
    "uri-reference": rf"^(?:[A-Za-z][A-Za-z0-9+.\-]*:(?:{_PATH}|{_SIGN}+(?:/{_SIGN}*)*)?"
    rf"|{_PATH}|(?:@|{_URI})+(?:/{_SIGN}*)*)?{_TAIL}$",
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "hostname": rf"^{_LABEL}(?:\.{_LABEL})*$",
    "idn-email": rf"^{_LOCAL}+(?:\.{_LOCAL}+)*@{_WORD}(?:\.{_WORD}){{0,2}}$",
    "ipv4": f"^{_IPV4}$",
    "ipv6": f"^(?:{_ipv6()})$",
}

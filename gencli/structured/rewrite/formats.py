"""Formats as patterns, where the grammar of the format is regular and short.

Sources: RFC 6901 (JSON pointer), the draft of relative JSON pointers, RFC 3986 (URI reference), RFC 6531
(mail addresses, of which only what surely is one), RFC 791 and 4291 (IP addresses).
"""

from __future__ import annotations

__all__ = ["PATTERNS"]

_POINTER = r"(?:/(?:[^/~]|~[01])*)*"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_H = "[0-9A-Fa-f]{1,4}"
_URI = r"(?:[A-Za-z0-9_.~!$&'()*+,;=@\-]|%[0-9A-Fa-f]{2})"
_PATH = rf"(?:[:/]|{_URI})*"
_TAIL = rf"(?:\?(?:[:/?]|{_URI})*)?(?:#(?:[:/?]|{_URI})*)?"


_IPV4 = rf"(?:{_BYTE}\.){{3}}{_BYTE}"
_LAST = f"(?:{_H}:{_H}|{_IPV4})"  # the last 32 bits


def _ipv6() -> str:
    """The nine forms of RFC 3986: eight groups, or fewer around one ::."""
    forms = [f"(?:{_H}:){{6}}{_LAST}", f"::(?:{_H}:){{5}}{_LAST}"]
    for most in range(7):
        before = f"(?:{_H}(?::{_H}){{0,{most}}})?" if most else f"(?:{_H})?"
        after = [f"(?:{_H}:){{{4 - most}}}{_LAST}"] if most < 4 else [_LAST, _H, ""][most - 4 : most - 3]
        forms.append(f"{before}::{after[0]}")
    return "|".join(forms)


PATTERNS: dict[str, str] = {
    "json-pointer": f"^{_POINTER}$",
    "relative-json-pointer": f"^(?:0|[1-9][0-9]*)(?:#|{_POINTER})$",
    "uri-reference": rf"^(?:[A-Za-z][A-Za-z0-9+.\-]*:{_PATH}|/{_PATH}|(?:{_URI})*(?:/{_PATH})?){_TAIL}$",
    "idn-email": r"^[^@\s\x00-\x1f]+@[^@\s\x00-\x1f]+$",
    "ipv4": f"^{_IPV4}$",
    "ipv6": f"^(?:{_ipv6()})$",
}

"""What comes next in a JSON text, if the model leaves white space out or puts it where it did before."""

from __future__ import annotations

from processors.grammar.backend import Matcher
from processors.grammar.canonical import Speller

__all__ = ["look_ahead"]

_LIMIT = 256  # bytes
_USUAL = {b"{": b"", b"[": b"", b",": b" ", b":": b" "}


def look_ahead(matcher: Matcher, speller: Speller, text: bytes, *, is_json: bool) -> bytes:
    """What the grammar forces, and for JSON, what it would force but for white space.

    `text` is the document so far, which shows where it has white space. The matcher is afterwards what it
    was.
    """
    walk, found = _Walk(matcher, speller), b""
    try:
        while len(found) < _LIMIT:
            step = b"" if matcher.is_complete() else matcher.forced()
            step = step or (_guess(walk, text + found) if is_json else b"")
            if not step or not walk.feed(step):
                break
            found += step
    finally:
        matcher.rollback(walk.accepted)
    return found


class _Walk:
    """A matcher that is given bytes, and counts the tokens that they took."""

    def __init__(self, matcher: Matcher, speller: Speller) -> None:
        self.accepted = 0
        self._matcher, self._speller = matcher, speller

    def feed(self, data: bytes) -> bool:
        """Whether all of these bytes are legal; the matcher is behind as many of them as are."""
        for byte in data:
            token = self._speller.byte_ids.get(byte)
            if token is None or not self._matcher.accept(token):
                return False
            self.accepted += 1
        return True

    def allows(self, data: bytes) -> bool:
        """Whether these bytes are legal."""
        start = self.accepted
        is_legal = self.feed(data)
        self._matcher.rollback(self.accepted - start)
        self.accepted = start
        return is_legal


def _guess(walk: _Walk, text: bytes) -> bytes:
    """Between two parts of the structure: white space and the one part that may come next."""
    done = text.rstrip()
    last, begun = done[-1:], text[len(done) :]
    if not last or last.isdigit() or walk.allows(b"Z"):  # inside a number or a string
        return b""
    known = _space_after(done[:-1], last)
    if not known.startswith(begun) and begun[-1:] == begun[-2:-1] and walk.allows(begun[-1:]):
        return begun[-1:]  # a run of two goes on, up to the cap
    space = known[len(begun) :] if known.startswith(begun) else b""
    parts = (b'"', b"{", b"[") if last in _USUAL else (b":", b",", b"}", b"]")
    legal = [part for part in parts if walk.allows(space + part)]
    return space + legal[0] if len(legal) == 1 else space


def _space_after(text: bytes, last: bytes) -> bytes:
    """The white space that came after this sign the last time, else what usually comes."""
    _, found, rest = text.rpartition(last)
    space = rest[: len(rest) - len(rest.lstrip())]
    return space if found and rest.strip() and last in _USUAL else _USUAL.get(last, b"")

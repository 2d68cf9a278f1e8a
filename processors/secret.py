"""`Secret`: numbers of a key that are never shown. It prints as a fingerprint, which differs between keys."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from typing import NoReturn

from processors.errors import ParamError

__all__ = ["MOST_KEY", "Secret", "fingerprint_of"]

MOST_KEY = 2**64 - 1
_SALT = b"processors.secret"
_COST = 2**14  # cost of scrypt: a fingerprint takes about 50 ms, which makes a search through small keys slow


class Secret:
    """One or several whole numbers from 0 to 2**64 - 1, equal and hashed by value.

    `str`, `repr` and `format` give the fingerprint: 32 bits of a slow hash, as in "#3f9a1c22". The numbers
    cannot be recovered from 32 bits, but a changed key is noticed. Raises ParamError, without the value, for
    other values.
    """

    __slots__ = ("_numbers",)
    _numbers: tuple[int, ...]

    def __init__(self, numbers: int | Iterable[int]) -> None:
        try:
            found = (numbers,) if isinstance(numbers, int) else tuple(numbers)
        except TypeError:
            raise _refused() from None
        if not found or not all(type(number) is int and 0 <= number <= MOST_KEY for number in found):
            raise _refused()
        object.__setattr__(self, "_numbers", found)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret does not change")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers themselves."""
        return self._numbers

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the key, shown in its place."""
        return fingerprint_of(" ".join(map(str, self.numbers)).encode())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.numbers == other.numbers

    def __hash__(self) -> int:
        return hash(self.numbers)

    def __str__(self) -> str:
        return self.fingerprint

    __repr__ = __str__

    def __reduce__(self) -> tuple[type[Secret], tuple[tuple[int, ...]]]:
        return Secret, (self.numbers,)


@cache
def fingerprint_of(content: bytes) -> str:
    """Return 32 bits of a slow hash as text. The same content has the same fingerprint everywhere."""
    digest = hashlib.scrypt(content, salt=_SALT, n=_COST, r=8, p=1, dklen=4)
    return f"#{digest.hex()}"


def _refused() -> ParamError:
    return ParamError(f"is no key, but has to be a whole number from 0 to {MOST_KEY}, or a list of such.")

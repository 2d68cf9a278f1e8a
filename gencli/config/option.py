"""Declaration of an option, for command line, help, variables, presets and docs; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin

from gencli.errors import UsageError
from gencli.helpers import shortened
from processors.params import Bounds, shown_number, whole
from processors.request_values import When

Section = Literal[
    "Server", "Prompt", "Presets", "Model", "Chain", "Guidance", "Draw", "Search", "Limits and stops",
    "Structure", "Drafts", "Output",
]  # fmt: skip
SECTIONS: tuple[str, ...] = get_args(Section)
ANY = Bounds()
MAX_BATCH = 65_536
MAX_SAMPLES = 1_000_000
MAX_ROWS = 10**12
MAX_SECONDS = 1e9
# What a message calls the numbers of a type, and what Python's values must be.
_NUMBERS: dict[Any, tuple[str, type]] = {int: ("a whole number", Integral), float: ("a number", Real)}


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `many`: it may be repeated; `read` turns the given text into the value.

    `stage`, `field` and `when`: the stage's field that the option sets, and the condition of its entry.
    `flag_only`: reason why presets lack the key. `key_name`: the key, if it differs from the flag's name.
    `help` and `hint` name other options by key in backticks.
    """

    names: tuple[str, ...]
    type: Any
    help: str
    section: Section
    default: Any = None
    bounds: Bounds = ANY
    many: bool = False
    metavar: str | None = None
    read: Callable[[Any], Any] | None = None
    stage: str = ""
    field: str = ""
    when: When | None = None
    hint: str = ""
    flag_only: str = ""
    key_name: str = ""

    @property
    def flag(self) -> str:
        return self.names[0].partition("/")[0]

    @property
    def key(self) -> str:
        """The name used in code, presets and messages."""
        return self.key_name or self.flag.lstrip("-").replace("-", "_")

    @property
    def variable(self) -> str:
        return f"GENCLI_{self.key.upper()}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The possible values; () if they cannot be listed."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    def value(self, raw: Any, source: str = "") -> Any:
        """Return the checked value. Raises UsageError that names the option, or `source`."""
        source = source or f"`{self.key}`"
        try:
            if self.read:
                value = self.read(raw)
            elif self.many:
                value = tuple(self._converted(item) for item in raw)
            else:
                value = self._converted(raw)
        except UsageError as error:
            raise UsageError(f"{source}: {error.message}", hint=error.hint) from None
        for item in value if isinstance(value, tuple) else (value,):
            parts = item if isinstance(item, tuple) else (item,)
            if any("\ud800" <= char <= "\udfff" for part in parts if isinstance(part, str) for char in part):
                raise UsageError(f"{source} holds bytes that are not UTF-8 text.")
            is_number = isinstance(item, int | float) and not isinstance(item, bool)
            if is_number and not self.bounds.allow(item):
                message = f"{source} is {shown_number(item)}, but has to be a number {self.bounds}."
                raise UsageError(message, hint=self.hint)
        return value

    def _converted(self, value: Any) -> Any:
        # Texts are read, a bool is on or off.
        if self.choices:
            if isinstance(value, bool) and {"on", "off"} <= set(self.choices):
                return "on" if value else "off"
            wanted, fits = "one of " + ", ".join(self.choices), value in self.choices
        elif self.type in _NUMBERS:
            wanted, kind = _NUMBERS[self.type]
            with suppress(ValueError):
                value = self.type(value) if isinstance(value, str) else value
            fits = isinstance(value, kind) and not isinstance(value, bool)
        else:
            return value
        if fits or value is None:
            return value
        shown = shortened(value, 60) if isinstance(value, str) else value
        raise UsageError(f"{shown!r} is not {wanted}.")


def read_batch(value: str | int) -> int | str:
    """Return a number of samples that run at once, or "auto". Raises UsageError."""
    if value == "auto":
        return "auto"
    if not (number := whole(str(value))):
        raise UsageError(f"{str(value)[:60]!r} is neither auto nor a whole number from 1.")
    return number


def read_pairs(
    texts: Iterable[str], form: str = "NAME=TEXT", is_name: Callable[[str], object] = str.isidentifier
) -> tuple[tuple[str, str], ...]:
    """Return pairs from texts of this form, cut at the first equals sign. Raises UsageError."""
    pairs: dict[str, str] = {}
    for item in texts:
        name, equals, text = item.partition("=")
        if not equals or not is_name(name):
            raise UsageError(f"{item[:60]!r} is not of the form {form}.")
        if name in pairs:
            raise UsageError(f"{name[:60]!r} is given two values.", hint="Leave one of them out.")
        pairs[name] = text
    return tuple(pairs.items())

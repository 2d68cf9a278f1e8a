"""Input of `gencli config import`: a file, stdin, or the words of a command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from gencli.errors import ConfigError, UsageError
from gencli.files import read_file, read_stream
from gencli.imports.peers import PEERS
from gencli.imports.preset import Imported, import_settings
from gencli.imports.source import MAX_BYTES, Source, read_arguments, read_text
from processors.names import close_names, did_you_mean
from processors.registry import Registry, builtin_registry

__all__ = ["import_from"]


def import_from(
    words: Sequence[str], peer: str, stdin: BinaryIO, registry: Registry | None = None
) -> Imported:
    """Return the preset of one file, of stdin (`-`), or of a command line of several words.

    `peer`: name of the system; "" detects it from the fields. Raises UsageError and ConfigError.
    """
    if peer and peer not in PEERS:
        near = did_you_mean([repr(name) for name in close_names(peer, PEERS)])
        hint = near or f"Known are {', '.join(PEERS)}."
        raise UsageError(f"Settings of {peer[:60]!r} cannot be read.", hint=hint)
    return import_settings(_source(list(words), peer, stdin), registry or builtin_registry())


def _source(words: list[str], peer: str, stdin: BinaryIO) -> Source:
    if sum(map(len, words)) > MAX_BYTES:
        raise UsageError(f"The command line has more than {MAX_BYTES} characters.")
    if len(words) > 1 or (words[0].startswith("-") and words != ["-"]):
        return read_arguments(words, peer)
    name = words[0]
    if " " in name.strip() and not Path(name).is_file():
        return read_text(name, peer)
    try:
        content = (
            read_stream(stdin, MAX_BYTES) if name == "-" else read_file(Path(name), MAX_BYTES, pipes=True)
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"The settings {name[:200]} cannot be read: {reason}.") from None
    try:
        return read_text(content.decode("utf-8-sig"), peer)
    except UnicodeDecodeError:
        raise ConfigError(f"The settings {name[:200]} are not UTF-8 text.") from None

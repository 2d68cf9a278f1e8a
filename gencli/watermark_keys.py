"""The file of a watermark's key: integers, or a mapping with further fields. No message shows a key."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from gencli.errors import ConfigError
from gencli.files import read_file
from gencli.yaml_text import FileLimits, YamlFault, parse
from processors.errors import ParamError
from processors.params import Params, Secret, fingerprint_of
from processors.stages.watermarks import GumbelMarkParams, KgwParams, SynthIdParams

STAGES: dict[str, tuple[str, type[Params]]] = {
    "kgw": ("kgw", KgwParams),
    "synthid": ("synthid", SynthIdParams),
    "gumbel": ("gumbel_mark", GumbelMarkParams),
}
KINDS = tuple(STAGES)

_BOUNDS = FileLimits("key file", max_bytes=64 * 1024, max_nodes=1000, max_depth=4)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}")
_DEPTH = 30  # tournaments of synthid for a single number
# Names of stage fields in transformers and vLLM.
_NAMES: dict[str, dict[str, str]] = {
    "kgw": {
        "hashing_key": "key",
        "greenlist_ratio": "ratio",
        "seeding_scheme": "scheme",
        "context_width": "width",
        "vocab_size": "vocab",
    },
    "synthid": {
        "keys": "key",
        "ngram_len": "ngram",
        "sampling_table_size": "table_size",
        "sampling_table_seed": "table_seed",
        "context_history_size": "history",
        "skip_first_ngram_calls": "skip_first",
    },
    "gumbel": {
        "context_width": "width",
        "deduplicate_contexts": "deduplicate",
        "deduplicate_contexts_max_history": "history",
    },
}


@dataclass(frozen=True, slots=True)
class NamedKey:
    """A key file that data select by name. Messages contain the name, but neither path nor content."""

    name: str
    content: str = field(repr=False)

    @classmethod
    def read_all(cls, files: Iterable[tuple[str, str]]) -> dict[str, Self]:
        """Return the keys of (name, file) pairs, by name. Raises ConfigError, which has the path."""
        return {name: cls(name, _content(file, f"The key {name}: the file")) for name, file in files}

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the content, written to records in its place."""
        return fingerprint_of(self.content.encode())


def read_key_file(kind: str, file: str | NamedKey) -> Params:
    """Return the parameters of a watermark of this kind, including its key. Raises ConfigError.

    The message contains the name of the file or key, and never its content, except field names.
    """
    if isinstance(file, NamedKey):
        source, text = f"The file of the key {file.name}", file.content
    else:
        source, text = f"The key file {file}", _content(file, "The key file")
    numbers = _numbers(text)
    fields: Mapping[str, Any] = {"key": numbers} if numbers else _mapping(kind, text, source)
    try:
        key = Secret(fields["key"])
        if kind == "synthid" and len(key.numbers) == 1:  # a key of 32 bits for each depth
            seed = key.numbers[0].to_bytes(8, "big")
            digests = (hashlib.sha256(b"synthid" + bytes([depth]) + seed).digest() for depth in range(_DEPTH))
            key = Secret([int.from_bytes(digest[:4], "big") for digest in digests])
        return STAGES[kind][1].from_mapping({**fields, "key": key})
    except ParamError as error:
        message = str(error) if not str(error).startswith("is no key") else f"key {error}"
        raise ConfigError(f"{source}: {message}") from None


def file_fingerprint(path: Path) -> str | None:
    """Return the fingerprint of a key file's content for records; None if it cannot be read."""
    try:
        return fingerprint_of(read_file(path, _BOUNDS.max_bytes))
    except (OSError, ValueError):
        return None


def _content(name: str, source: str) -> str:
    try:
        return read_file(Path(os.path.expanduser(name)), _BOUNDS.max_bytes).decode("utf-8-sig").strip()
    except (OSError, ValueError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else ""
        reason = reason or getattr(error, "strerror", None) or "it is no file name"
        raise ConfigError(f"{source} {name} cannot be read: {reason}.") from None


def _numbers(text: str) -> list[int]:
    """Return the integers of the text; [] if it is something else."""
    words = text.replace(",", " ").split()
    are_numbers = 0 < len(words) <= _BOUNDS.max_nodes and all(map(_NUMBER.fullmatch, words))
    return [int(word, 0 if word[:2].lower() == "0x" else 10) for word in words] if are_numbers else []


def _mapping(kind: str, text: str, source: str) -> dict[str, Any]:
    """Return the fields of a mapping in YAML or JSON."""
    faults: list[YamlFault] = []
    root = parse(text.encode(), faults, _BOUNDS)
    if faults or root is None or not isinstance(root.value, Mapping):
        where = f" (line {faults[0].line})" if faults else ""
        raise ConfigError(
            f"{source} has neither whole numbers nor a mapping in YAML or JSON{where}.",
            hint="Make a number with: python -c 'import secrets; print(secrets.randbits(63))'",
        )
    names = [field.name for field in STAGES[kind][1].own_fields()]
    fields: dict[str, Any] = {}
    for name, value in root.plain().items():
        key = str(name)
        if key == "watermark":
            if value != kind:
                raise ConfigError(f"{source} names another watermark than {kind}.")
            continue
        field = _NAMES[kind].get(key, key)
        if field not in names:
            shown = repr(key) if key.isidentifier() and len(key) <= 40 else "that is no name"
            raise ConfigError(
                f"{source} has an unknown field {shown}; the fields of {kind} are {', '.join(names)}."
            )
        if field in fields:
            raise ConfigError(f"{source} sets {field} twice.")
        fields[field] = value
    if fields.get("key") is None:
        raise ConfigError(f"{source} has no key: add a line such as key: NUMBER.")
    return fields

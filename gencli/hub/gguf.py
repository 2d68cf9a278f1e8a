"""Selects a GGUF file of a repository by quantization, such as Q4_0, or by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from gencli.models.gguf.head import PART, is_gguf

__all__ = ["choose_gguf", "gguf_models"]

_BESIDE = ("mmproj", "imatrix")  # prefixes of GGUF files that are not language models


def gguf_models(files: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return GGUF files by the name of a model's first file: this file, or all of its parts."""
    made: dict[str, list[str]] = {}
    for file in sorted(files):
        if not is_gguf(file) or file.lower().startswith(_BESIDE):
            continue
        part = PART.fullmatch(file)
        first = f"{part['stem']}-00001-of-{part['count']}.gguf" if part else file
        made.setdefault(first, []).append(file)
    return {
        first: tuple(found)
        for first, found in made.items()
        if (part := PART.fullmatch(first)) is None or len(found) == int(part["count"])
    }


def choose_gguf(files: Iterable[str], wanted: str) -> dict[str, tuple[str, ...]]:
    """Return the models, by their first file, that are quantized as `wanted` or have that file name.

    The quantization is a part of the name between dots or dashes; case is ignored.
    """
    models = gguf_models(files)
    if is_gguf(wanted):
        return {first: found for first, found in models.items() if wanted in found}
    pattern = re.compile(rf"(?:^|[-.]){re.escape(wanted)}(?:[-.]|$)", re.IGNORECASE)
    return {first: found for first, found in models.items() if pattern.search(PurePosixPath(first).stem)}

"""Choose a GGUF file among those of a repository by its quantization, such as Q4_0, or by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from gencli.models.gguf.head import PART, is_gguf

__all__ = ["choose_gguf", "gguf_models"]

_BESIDE = ("mmproj", "imatrix")  # beginnings of GGUF files that are no language models


def gguf_models(files: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the GGUF files by the name of the model's first file: itself, or all of its parts."""
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

    The quantization is a part of the name between dots or dashes, in capital or small letters.
    """
    models = gguf_models(files)
    if is_gguf(wanted):
        return {first: found for first, found in models.items() if wanted in found}
    pattern = re.compile(rf"(?:^|[-.]){re.escape(wanted)}(?:[-.]|$)", re.IGNORECASE)
    return {first: found for first, found in models.items() if pattern.search(PurePosixPath(first).stem)}

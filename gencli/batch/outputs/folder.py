"""A folder with a text file for each sample, named by the id; index.jsonl maps rows to files."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

from gencli.batch.ids import id_hash
from gencli.batch.outputs.base import OutputFormat, RowWriter
from gencli.batch.records import Outcome
from gencli.batch.samples import samples_of
from gencli.errors import UsageError
from gencli.files import beside, sync_folder
from gencli.json_text import to_json

__all__ = ["INDEX", "TEXTS", "check_replaceable", "safe_name"]

INDEX = "index.jsonl"
_MAX_BYTES = 150  # bytes of a name, below the limits of all file systems
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\.|$)")  # names reserved by Windows


def safe_name(name: str) -> str:
    """Return an id as a file name: letters, digits and ._- are kept, other characters become %XX.

    The name has no folder, is not hidden and has limited length. Different ids have different names, which on
    some file systems may differ in case only.
    """
    made = quote(name, safe="").replace("~", "%7E")
    if made.startswith(".") or _DEVICES.match(made):
        made = f"%{ord(made[0]):02X}{made[1:]}"
    return made if len(made) <= _MAX_BYTES else f"{made[:_MAX_BYTES]}~{id_hash(name):016x}"


def check_replaceable(path: Path) -> None:
    """Raise UsageError unless the path is free, an empty folder, or a folder with results only."""
    if not path.exists() or (path.is_dir() and (not any(path.iterdir()) or _holds_texts_alone(path))):
        return
    raise UsageError(
        f"`output` = {path} exists, and is not a folder with results only.", hint="Name a new folder."
    )


def _holds_texts_alone(folder: Path) -> bool:
    """Return whether the folder contains exactly an index and the files that it lists."""
    try:
        with (folder / INDEX).open(encoding="utf-8") as index:
            names = (name for line in index for name in json.loads(line)["files"] if name)
            known: int = sum(Path(name).name == name and (folder / name).is_file() for name in names)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    with os.scandir(folder) as entries:
        return sum(1 for _ in entries) == known + 1


class _FolderOfTexts:
    """Writes texts as files. A name that already exists in the folder gets the suffix ~2, ~3, ..."""

    def __init__(self, folder: Path, index: TextIO) -> None:
        self._folder, self._index = folder, index

    def write(self, outcome: Outcome) -> None:
        """Write the texts of the row and its line in the index; a failed sample has no file."""
        samples = samples_of(outcome.result)
        name = safe_name(outcome.id)
        files: list[str | None] = []
        for number, sample in enumerate(samples, start=1):
            stem = name if len(samples) == 1 else f"{name}.{number}"
            files.append(None if sample["error"] else self._file(stem, sample["text"]))
        line = {
            "index": outcome.index,
            "id": outcome.id,
            "files": files,
            "finish_reason": [sample["finish_reason"] for sample in samples],
            "error": [sample["error"] for sample in samples],
        }
        kept = outcome.result.get("input")
        self._index.write(to_json({**line, **({} if kept is None else {"input": kept})}) + "\n")

    def _file(self, stem: str, text: str) -> str:
        number = 1
        while True:
            name = f"{stem}.txt" if number == 1 else f"{stem}~{number}.txt"
            try:
                with (self._folder / name).open("x", encoding="utf-8", newline="") as file:
                    file.write(text)
            except FileExistsError:
                number += 1
            else:
                return name


@contextmanager
def _open(path: Path) -> Iterator[RowWriter]:
    """Open a writer of texts; after the block the folder is renamed, and replaces an older one."""
    part, old = beside(path), path.with_name(f".{path.name}.old")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        with (part / INDEX).open("w", encoding="utf-8", newline="") as index:
            yield _FolderOfTexts(part, index)
        check_replaceable(path)  # checked again: the folder may have changed
        if path.is_dir():
            shutil.rmtree(old, ignore_errors=True)
            os.replace(path, old)
        os.replace(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


TEXTS = OutputFormat("texts", folder=_open)

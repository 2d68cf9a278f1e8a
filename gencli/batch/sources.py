"""The input of a batch: files, folders, patterns, URLs and stdin as one stream of records.

Each iteration reads the input again; nothing is kept in memory. stdin is copied to a temporary file.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from glob import glob
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import urlsplit

from gencli.batch.formats import READERS, SUFFIXES
from gencli.batch.formats.base import Reader, Unfit
from gencli.batch.formats.table import read_table
from gencli.batch.opening import COMPRESSED, is_damage, open_local, open_url, remote_files, unpacked
from gencli.batch.records import Failure, Record
from gencli.errors import UsageError
from processors.names import close_names, did_you_mean

__all__ = ["Input", "Source", "open_input"]

_KNOWN = f"{', '.join(SUFFIXES)}, each also with {' or '.join(COMPRESSED)}"
_CHOOSE = f"Set `input_format` = {'|'.join(READERS)}, or name it {_KNOWN}."
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its name in messages, path or URL, format, and compression suffix."""

    name: str
    place: Path | str  # a path, or a URL
    format: str
    packing: str = ""
    copy: _Copy | None = None  # keeps the copy of stdin alive

    def open(self) -> BinaryIO:
        """Open the bytes, still compressed."""
        return open_local(self.place) if isinstance(self.place, Path) else open_url(self.place)


class Input:
    """The records of all sources, in order; each iteration reads them again.

    `notices` name skipped files. Iterating raises UsageError for a file that cannot be read.
    """

    def __init__(
        self, sources: Sequence[Source], *, notices: Sequence[str] = (), delimiter: str | None = None
    ) -> None:
        self.sources = tuple(sources)
        self.notices = tuple(notices)
        self._delimiter = delimiter

    @property
    def paths(self) -> tuple[Path, ...]:
        """The local files among the sources."""
        return tuple(source.place for source in self.sources if isinstance(source.place, Path))

    def __iter__(self) -> Iterator[Record]:
        index = 0
        for source in self.sources:
            for record in self._records(source, index):
                yield record
                index += 1

    def _records(self, source: Source, index: int) -> Iterator[Record]:
        reader, number = self._reader(source.format), 0
        is_seekable = source.format == "parquet"
        try:
            with unpacked(source.open, source.packing, source.name, seekable=is_seekable) as stream:
                for number, found in reader(stream, source.name):
                    place = f"{source.name}:{number}"
                    if isinstance(found, Failure):
                        yield Record(index, place, failure=found)
                    else:
                        yield Record(index, place, found)
                    index += 1
        except Unfit as error:
            raise UsageError(f"{source.name} {error}.") from None
        except (OSError, EOFError, zlib.error) as error:
            if not is_damage(error):
                raise UsageError(f"{source.name} cannot be read after line {number}: {error}.") from error
            text = f"{source.name} is damaged after line {number}, the rest is lost: {error}."
            yield Record(index, f"{source.name}:{number + 1}", failure=Failure("InputError", text))

    def _reader(self, name: str) -> Reader:
        if self._delimiter is None or name not in ("csv", "tsv"):
            return READERS[name]
        return partial(read_table, delimiter=self._delimiter)


def open_input(
    spec: Sequence[str],
    *,
    format: str | None = None,  # noqa: A002
    delimiter: str | None = None,
) -> Input:
    """Return the input specified by `spec`: files, folders, patterns, URLs, and - for stdin.

    `format`: format of all files; without it the suffix decides, for stdin the first character. `delimiter`:
    separator of table cells. Raises UsageError for missing files and unknown formats.
    """
    if list(spec).count("-") > 1:
        raise UsageError("stdin (-) is given twice, but it can be read only once.")
    if format is not None and format not in READERS:
        raise UsageError(f"`input_format` is {format!r}, but has to be one of {', '.join(READERS)}.")
    if delimiter is not None and len(delimiter) != 1:
        raise UsageError(f"`delimiter` is {delimiter!r}, but has to be one character.")
    notices: list[str] = []
    sources = [source for text in spec for source in _sources(text, format, notices)]
    if not sources:
        raise UsageError(
            "There is no input.", hint="Name a file, a folder, a pattern, a URL, or - for stdin."
        )
    return Input(sources, notices=notices, delimiter=delimiter)


def _sources(text: str, format: str | None, notices: list[str]) -> list[Source]:  # noqa: A002
    """Return the sources of one argument."""
    if text == "-":
        return [_stdin(format)]
    if "://" in text:
        return [_source(url, url, format) for url in remote_files(text)]
    path = Path(text)
    if path.is_dir():
        return _folder(path, format, notices)
    if path.exists() and not path.is_file():  # a named pipe, or a shell's <(...)
        with open_local(path) as pipe:
            return [_piped(text, pipe, format)]
    return [_source(str(path), path, format) for path in _files(text)]


def _files(text: str) -> list[Path]:
    path = Path(text)
    if path.exists():
        return [path]
    if any(char in text for char in "*?["):
        found = sorted(path for path in map(Path, glob(text, recursive=True)) if path.is_file())
        if not found:
            raise UsageError(f"No file matches {text}.")
        return found
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    names = [entry.name for entry in beside if entry.exists()]
    guess = did_you_mean([str(path.with_name(name)) for name in close_names(path.name, names)])
    raise UsageError(f"There is no file {text}.", hint=guess or "Check the path.")


def _folder(folder: Path, format: str | None, notices: list[str]) -> list[Source]:  # noqa: A002
    """Return the sorted files below a folder, without hidden files and unknown formats."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_hidden(path, folder))
    known = [path for path in paths if format or _split(path.name)[0] in SUFFIXES]
    unknown = [str(path) for path in paths if path not in set(known)]
    if not known:
        raise UsageError(f"The folder {folder} has no file of a known format.", hint=_CHOOSE)
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        notices.append(f"Left out, for their names end in no known format: {', '.join(unknown[:3])}{more}.")
    return [_source(str(path), path, format) for path in known]


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _source(name: str, place: Path | str, format: str | None) -> Source:  # noqa: A002
    bare = urlsplit(place).path if isinstance(place, str) else name
    suffix, packing = _split(bare)
    if not format and suffix not in SUFFIXES:
        raise UsageError(f"The name {name} has no suffix of a known format.", hint=_CHOOSE)
    return Source(name, place, format or SUFFIXES[suffix], packing)


def _split(name: str) -> tuple[str, str]:
    """Return the suffix of the format and the suffix of the compression."""
    path = PurePosixPath(Path(name).name.lower())
    packing = path.suffix if path.suffix in COMPRESSED else ""
    return (PurePosixPath(path.stem).suffix if packing else path.suffix), packing


def _stdin(format: str | None) -> Source:  # noqa: A002
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("The input is stdin (-), but nothing is piped into it.")
    return _piped("stdin", sys.stdin.buffer, format)


def _piped(name: str, stream: BinaryIO, format: str | None) -> Source:  # noqa: A002
    """Return a source that can be read repeatedly, from a stream that can be read once."""
    copy = _Copy(stream)
    return Source(name, copy.path, format or _sniffed(copy.path, name), copy=copy)


class _Copy:
    """A temporary file with the content of a stream; deleted together with this object."""

    def __init__(self, stream: BinaryIO) -> None:
        with tempfile.NamedTemporaryFile(prefix="gencli-", delete=False) as file:
            self.path = Path(file.name)
            weakref.finalize(self, self.path.unlink, missing_ok=True)
            shutil.copyfileobj(stream, file)


def _sniffed(path: Path, name: str) -> str:
    """Return the format by the first character: JSON Lines, a JSON array, or one prompt per line."""
    with path.open("rb") as file:
        head = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(_PACKED):
        raise UsageError(
            f"{name} is compressed.", hint="Unpack it on the way: gzip -dc FILE | gencli batch -"
        )
    return {b"{": "jsonl", b"[": "json"}.get(head[:1], "lines")

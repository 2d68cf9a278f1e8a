"""The input of a batch: files, folders, patterns, URLs and stdin as one stream of records, and the
selection of records. Each iteration reads the input again; nothing is kept in memory. stdin is copied
to a temporary file.
"""

from __future__ import annotations

import gzip
import io
import shutil
import sys
import tempfile
import weakref
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from glob import glob
from hashlib import blake2b
from heapq import heappush, heapreplace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from gencli.batch.batch_records import Failure, Record
from gencli.batch.input_formats import INSTALL, READERS, SUFFIXES, Unfit, need_pyarrow, read_table
from gencli.errors import UsageError
from gencli.files import open_regular
from processors.errors import close_names, did_you_mean
from processors.params import whole

COMPRESSED = (".gz", ".zst")
_TIMEOUT = 60.0  # seconds without a byte


def open_local(path: Path) -> BinaryIO:
    """Open a local file or a pipe. Raises UsageError."""
    try:
        return open_regular(path, pipes=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error


def open_url(url: str) -> BinaryIO:
    """Open a URL: HTTP with the standard library, other schemes with fsspec. Raises UsageError."""
    try:
        if url.startswith(("http://", "https://")):
            response = urlopen(Request(url, headers={"User-Agent": "gencli"}), timeout=_TIMEOUT)
            return io.BufferedReader(_Download(response, url))
        import fsspec

        return cast(BinaryIO, fsspec.open(url, "rb").open())
    except (ImportError, ValueError) as error:
        raise _no_driver(url, error) from error
    except URLError as error:
        raise UsageError(f"{url} cannot be read: {error.reason}.") from error
    except Exception as error:  # each driver has its own exceptions
        raise UsageError(f"{url} cannot be read: {error or type(error).__name__}.") from error


def remote_files(url: str) -> list[str]:
    """Return the sorted files of a URL that is a folder or pattern; otherwise the URL itself."""
    if url.startswith(("http://", "https://")):
        return [url]
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(url)
        is_pattern = any(char in path for char in "*?[")
        if not is_pattern and not system.isdir(path):
            return [url]
        paths = system.glob(path) if is_pattern else system.find(path)
        return [system.unstrip_protocol(path) for path in sorted(paths) if system.isfile(path)]
    except (ImportError, ValueError) as error:
        raise _no_driver(url, error) from error
    except Exception as error:  # each driver has its own exceptions
        raise UsageError(f"{url} cannot be listed: {error or type(error).__name__}.") from error


def _no_driver(url: str, error: Exception) -> UsageError:
    scheme = url.partition("://")[0]
    hint = f"{str(error).rstrip('.')}." if isinstance(error, ImportError) else ""
    return UsageError(f"There is no driver for {scheme}:// ({url}).", hint=hint or INSTALL)


class _Download(io.RawIOBase):
    """The body of a response. Raises UsageError if the connection ends before the body."""

    def __init__(self, response: Any, url: str) -> None:
        self._response, self._url = response, url

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            size = int(self._response.readinto(buffer))
        except OSError as error:
            raise UsageError(f"{self._url} cannot be read further: {error}.") from error
        if not size and self._response.length:
            raise UsageError(
                f"{self._url} cannot be read further: {self._response.length} bytes are missing."
            )
        return size

    def close(self) -> None:
        self._response.close()
        super().close()


@contextmanager
def unpacked(opened: Callable[[], BinaryIO], suffix: str, name: str, *, seekable: bool) -> Iterator[BinaryIO]:
    """Open the stream, decompressed by its suffix; `seekable`: copied to a temporary file if needed."""
    with ExitStack() as stack:
        stream = stack.enter_context(opened())
        if suffix == ".gz":
            stream = cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=stream)))
        elif suffix == ".zst":
            need_pyarrow(name)
            import pyarrow as pa

            packed = stack.enter_context(pa.CompressedInputStream(stream, "zstd"))
            stream = cast(BinaryIO, stack.enter_context(io.BufferedReader(packed)))
        if seekable and (suffix or not stream.seekable()):
            file = stack.enter_context(tempfile.TemporaryFile(prefix="gencli-"))
            shutil.copyfileobj(stream, file)
            file.seek(0)
            stream = cast(BinaryIO, file)
        yield stream


_SUFFIX_NAMES = f"{', '.join(SUFFIXES)}, each also with {' or '.join(COMPRESSED)}"
_CHOOSE = f"Set `input_format` = {'|'.join(READERS)}, or name it {_SUFFIX_NAMES}."
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file: its name in messages, path or URL, format, and compression suffix."""

    name: str
    address: Path | str  # a path, or a URL
    format: str
    packing: str = ""
    copy: _Copy | None = None  # keeps the copy of stdin alive

    def open(self) -> BinaryIO:
        """Open the bytes, still compressed."""
        return open_local(self.address) if isinstance(self.address, Path) else open_url(self.address)


@dataclass(frozen=True, slots=True)
class Input:
    """The records of all sources, in order; each iteration reads them again.

    `notices` name skipped files. Iterating raises UsageError for a file that cannot be read.
    """

    sources: tuple[InputFile, ...]
    notices: tuple[str, ...] = ()
    delimiter: str | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The local files among the sources."""
        return tuple(source.address for source in self.sources if isinstance(source.address, Path))

    def __iter__(self) -> Iterator[Record]:
        index = 0
        for source in self.sources:
            for record in self._records(source, index):
                yield record
                index += 1

    def _records(self, source: InputFile, index: int) -> Iterator[Record]:
        reader, number = READERS[source.format], 0
        if self.delimiter is not None and source.format in ("csv", "tsv"):
            reader = partial(read_table, delimiter=self.delimiter)
        is_seekable = source.format == "parquet"
        try:
            with unpacked(source.open, source.packing, source.name, seekable=is_seekable) as stream:
                for number, item in reader(stream, source.name):
                    content = {"failure": item} if isinstance(item, Failure) else {"columns": item}
                    yield Record(index, f"{source.name}:{number}", **content)
                    index += 1
        except Unfit as error:
            raise UsageError(f"{source.name} {error}.") from None
        except (OSError, EOFError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno is not None:  # else compressed data is damaged
                raise UsageError(f"{source.name} cannot be read after line {number}: {error}.") from error
            text = f"{source.name} is damaged after line {number}, the rest is lost: {error}."
            yield Record(index, f"{source.name}:{number + 1}", failure=Failure("InputError", text))


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
    sources = tuple(source for text in spec for source in _sources(text, format, notices))
    if not sources:
        raise UsageError(
            "There is no input.", hint="Name a file, a folder, a pattern, a URL, or - for stdin."
        )
    return Input(sources, tuple(notices), delimiter)


def _sources(text: str, format: str | None, notices: list[str]) -> list[InputFile]:  # noqa: A002
    if text == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("The input is stdin (-), but nothing is piped into it.")
        return [_piped("stdin", sys.stdin.buffer, format)]
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
        paths = sorted(path for path in map(Path, glob(text, recursive=True)) if path.is_file())
        if not paths:
            raise UsageError(f"No file matches {text}.")
        return paths
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    names = [entry.name for entry in beside if entry.exists()]
    guess = did_you_mean([str(path.with_name(name)) for name in close_names(path.name, names)])
    raise UsageError(f"There is no file {text}.", hint=guess or "Check the path.")


def _folder(folder: Path, format: str | None, notices: list[str]) -> list[InputFile]:  # noqa: A002
    """Return the sorted files below a folder, without hidden files and unknown formats."""
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    readable = [path for path in paths if format or _split(path.name)[0] in SUFFIXES]
    unknown = [str(path) for path in paths if path not in set(readable)]
    if not readable:
        raise UsageError(f"The folder {folder} has no file of a known format.", hint=_CHOOSE)
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        notices.append(
            f"Skipped, because the suffix is not that of a known format: {', '.join(unknown[:3])}{more}."
        )
    return [_source(str(path), path, format) for path in readable]


def _source(name: str, address: Path | str, format: str | None) -> InputFile:  # noqa: A002
    suffix, packing = _split(urlsplit(address).path if isinstance(address, str) else name)
    if not format and suffix not in SUFFIXES:
        raise UsageError(f"The name {name} has no suffix of a known format.", hint=_CHOOSE)
    return InputFile(name, address, format or SUFFIXES[suffix], packing)


def _split(name: str) -> tuple[str, str]:
    """Return the suffix of the format and the suffix of the compression."""
    path = PurePosixPath(Path(name).name.lower())
    packing = path.suffix if path.suffix in COMPRESSED else ""
    return (PurePosixPath(path.stem).suffix if packing else path.suffix), packing


def _piped(name: str, stream: BinaryIO, format: str | None) -> InputFile:  # noqa: A002
    copy = _Copy(stream)
    if format is None:
        with copy.path.open("rb") as file:
            head = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
        if head.startswith(_PACKED):
            raise UsageError(
                f"{name} is compressed.", hint="Unpack it on the way: gzip -dc FILE | gencli batch -"
            )
        format = {b"{": "jsonl", b"[": "json"}.get(head[:1], "lines")  # noqa: A001
    return InputFile(name, copy.path, format, copy=copy)


class _Copy:
    """A temporary file with the content of a stream; deleted together with this object."""

    def __init__(self, stream: BinaryIO) -> None:
        with tempfile.NamedTemporaryFile(prefix="gencli-", delete=False) as file:
            self.path = Path(file.name)
            weakref.finalize(self, self.path.unlink, missing_ok=True)
            shutil.copyfileobj(stream, file)


@dataclass(frozen=True, slots=True)
class Shard:
    """The records with index modulo `of` equal to `part`."""

    part: int = 0
    of: int = 1


def read_shard(text: str) -> Shard:
    """Return the shard written as i/n, such as 0/4; i counts from 0. Raises UsageError."""
    part, slash, of = text.partition("/")
    at, count = whole(part), whole(of)
    if not slash or at is None or count is None or at >= count:
        raise UsageError(
            f"`shard` is {text[:60]!r}, but has to be i/n with i from 0 to n - 1.",
            hint="Four machines take 0/4, 1/4, 2/4 and 3/4.",
        )
    return Shard(at, count)


@dataclass(frozen=True, slots=True)
class Selected:
    """The selected records in the order of the input; each iteration reads the input again.

    A sample consists of the n records with the smallest hashes of seed and index, so it depends only on the
    seed and the number of records. Sampling reads the input twice and stores n numbers.
    """

    records: Iterable[Record]
    limit: int | None = None
    sample: int | None = None
    shard: Shard = Shard()
    seed: int = 0

    def __iter__(self) -> Iterator[Record]:
        records = iter(self.records) if self.sample is None else self._sampled(self.sample)
        for record in islice(records, self.limit):
            if record.index % self.shard.of == self.shard.part:
                yield record

    def _sampled(self, size: int) -> Iterator[Record]:
        chosen = _chosen(sum(1 for _ in self.records), size, self.seed)
        for record in self.records:
            at = bisect_left(chosen, record.index)
            if at < len(chosen) and chosen[at] == record.index:
                yield record


def _chosen(total: int, size: int, seed: int) -> array[int]:
    """Return the ascending indices of a sample of `size` out of `total` records."""
    heap: list[tuple[int, int]] = []  # negated hashes, so that the largest of the smallest hashes is on top
    for index in range(total):
        digest = blake2b(b"%d %d" % (seed, index), digest_size=8).digest()
        entry = (-int.from_bytes(digest, "little"), index)
        if len(heap) < size:
            heappush(heap, entry)
        elif heap and entry > heap[0]:
            heapreplace(heap, entry)
    return array("Q", sorted(index for _, index in heap))

"""The output of a batch: checked before the run, written by one of the output formats, in atomic files or
a folder.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast
from urllib.parse import quote

from gencli.batch.batch_records import Outcome, samples_of
from gencli.batch.batch_rows import id_hash, response_line
from gencli.batch.input_formats import need_pyarrow
from gencli.batch.table_columns import (
    ListOf,
    OutputFormat,
    RowWriter,
    StructOf,
    Table,
    TextTarget,
    Type,
    generated,
)
from gencli.errors import GenerationError, UsageError
from gencli.files import beside, replaced, sync_folder
from gencli.json_text import to_json


def _open_jsonl(
    line: Callable[[Outcome], Any], target: TextTarget, table: Table
) -> AbstractContextManager[RowWriter]:
    return nullcontext(RowWriter(lambda outcome: target.write(to_json(line(outcome)) + "\n")))


def _record(outcome: Outcome) -> dict[str, Any]:
    """Return the record of `gencli run` with `format` = json, with the row's index first."""
    return {"index": outcome.index, **outcome.result, "id": outcome.id}


def _response(outcome: Outcome) -> dict[str, Any]:
    return response_line(outcome.id, outcome.result)


JSONL = OutputFormat("jsonl", (".jsonl", ".ndjson"), lines=partial(_open_jsonl, _record))
OPENAI = OutputFormat("openai", lines=partial(_open_jsonl, _response), has_fields=False)


class _Newlines:
    """Ends rows with LF. csv writes CR LF, because only then it quotes a carriage return."""

    def __init__(self, target: TextTarget) -> None:
        self._target = target

    def write(self, row: str) -> object:
        return self._target.write(row.removesuffix("\r\n") + "\n")


def _cell(value: object) -> object:
    if isinstance(value, list | dict):
        return to_json(value)
    return str(value).lower() if isinstance(value, bool) else value


def _open_table(target: TextTarget, table: Table, *, delimiter: str) -> AbstractContextManager[RowWriter]:
    """Write the column names; return a writer of rows in which null is an empty cell."""
    writer = csv.writer(_Newlines(target), delimiter=delimiter)
    writer.writerow(table.columns)
    return nullcontext(
        RowWriter(lambda outcome: writer.writerows(map(_cell, row.values()) for row in table.rows(outcome)))
    )


CSV = OutputFormat("csv", (".csv",), lines=partial(_open_table, delimiter=","), is_table=True)
TSV = OutputFormat("tsv", (".tsv",), lines=partial(_open_table, delimiter="\t"), is_table=True)


_ROWS = 10_000  # of a group
_TYPES: Mapping[Type, str] = {
    "boolean": "bool_",
    "integer": "int64",
    "number": "float64",
    "text": "string",
    "json": "string",
}


def _stored(kind: Type) -> Any:
    import pyarrow as pa

    if isinstance(kind, ListOf):
        return pa.list_(_stored(kind.item))
    if isinstance(kind, StructOf):
        return pa.struct([(name, _stored(field)) for name, field in kind.fields])
    return getattr(pa, _TYPES[kind])()


@contextmanager
def _open_parquet(file: BinaryIO, table: Table) -> Iterator[RowWriter]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    schema = pa.schema([(name, _stored(kind)) for name, kind in table.columns.items()])
    rows: list[dict[str, Any]] = []  # of the group that is not written yet

    def flush(size: int) -> None:
        if len(rows) >= size:
            parquet.write_table(pa.Table.from_pylist(rows, schema=schema))
            rows.clear()

    def write(outcome: Outcome) -> None:
        rows.extend(table.rows(outcome))
        flush(_ROWS)

    with ParquetWriter(file, schema) as parquet:
        yield RowWriter(write)
        flush(1)


PARQUET = OutputFormat("parquet", (".parquet", ".pq"), file=_open_parquet, needs_pyarrow=True, is_table=True)


INDEX = "index.jsonl"
_MAX_BYTES = 150  # bytes of a name, below the limits of all file systems
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\.|$)")  # names reserved by Windows


def safe_name(name: str) -> str:
    """Return an id as a file name: letters, digits and ._- are kept, other characters become %XX.

    The name has no folder, is not hidden and has limited length. Different ids have different names, which on
    some file systems may differ in case only.
    """
    quoted = quote(name, safe="").replace("~", "%7E")
    if quoted.startswith(".") or _DEVICES.match(quoted):
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    return quoted if len(quoted) <= _MAX_BYTES else f"{quoted[:_MAX_BYTES]}~{id_hash(name):016x}"


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
            num_files: int = sum(Path(name).name == name and (folder / name).is_file() for name in names)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    with os.scandir(folder) as entries:
        return sum(1 for _ in entries) == num_files + 1


def _write_texts(folder: Path, index: TextIO, outcome: Outcome) -> None:
    """Write the texts of the row and its line in the index; a failed sample has no file."""
    samples, name = samples_of(outcome.result), safe_name(outcome.id)
    files: list[str | None] = []
    for number, sample in enumerate(samples, start=1):
        stem = name if len(samples) == 1 else f"{name}.{number}"
        files.append(None if sample["error"] else _write_text(folder, stem, sample["text"]))
    line = {
        "index": outcome.index,
        "id": outcome.id,
        "files": files,
        "finish_reason": [sample["finish_reason"] for sample in samples],
        "error": [sample["error"] for sample in samples],
    }
    kept = outcome.result.get("input")
    index.write(to_json({**line, **({} if kept is None else {"input": kept})}) + "\n")


def _write_text(folder: Path, stem: str, text: str) -> str:
    """Write a text as a file; return its name, with the suffix ~2, ~3, ... if the folder has it already."""
    for number in count(1):
        name = f"{stem}.txt" if number == 1 else f"{stem}~{number}.txt"
        with suppress(FileExistsError), (folder / name).open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            break
    return name


@contextmanager
def _open_folder(path: Path) -> Iterator[RowWriter]:
    """Open a writer of texts; after the block the folder is renamed, and replaces an older one."""
    part, old = beside(path), path.with_name(f".{path.name}.old")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        with (part / INDEX).open("w", encoding="utf-8", newline="") as index:
            yield RowWriter(partial(_write_texts, part, index))
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


TEXTS = OutputFormat("texts", folder=_open_folder, has_fields=False)
OUTPUT_FORMATS: Mapping[str, OutputFormat] = {
    form.name: form for form in (JSONL, OPENAI, CSV, TSV, PARQUET, TEXTS)
}


@dataclass(frozen=True, slots=True)
class OutputTarget:
    """Path and format of the results; `path` is None for stdout."""

    path: Path | None
    format: OutputFormat

    @contextmanager
    def open(self, table: Table | None = None, *, stdout: TextTarget | None = None) -> Iterator[RowWriter]:
        """Open a writer. The output is renamed to its path after the block, or deleted after an exception.

        `table`: the columns of tables; by default those of generated texts. Raises GenerationError if writing
        fails.
        """
        try:
            with ExitStack() as stack:
                yield self._opened(table or generated(), stdout, stack)
        except OSError as error:
            where = self.path or "stdout"
            raise GenerationError(f"Cannot write to {where}: {error.strerror or error}.") from error

    def _opened(self, table: Table, stdout: TextTarget | None, stack: ExitStack) -> RowWriter:
        form, path = self.format, self.path
        if path is not None and form.folder is not None:
            return stack.enter_context(form.folder(path))
        file = None if path is None else stack.enter_context(open_beside(path))
        if file is not None and form.file is not None:
            return stack.enter_context(form.file(file, table))
        assert form.lines is not None  # plan_output rejects other formats on stdout
        target = stdout
        if file is not None:
            # A lone surrogate cannot be encoded. JSON reads it back from its escape.
            target = io.TextIOWrapper(file, encoding="utf-8", newline="", errors="backslashreplace")
            stack.callback(target.detach)  # flushes
        return stack.enter_context(form.lines(cast(TextTarget, target), table))


def plan_output(
    path: str | None,
    format: str | None = None,  # noqa: A002
    *,
    inputs: Iterable[Path] = (),
    formats: Mapping[str, OutputFormat] = OUTPUT_FORMATS,
) -> OutputTarget:
    """Return the output of the options `output` and `format`; the paths `-` and None are stdout.

    Without a format the suffix decides; stdout gets the first of the `formats`. Raises UsageError for a path
    that is not writable, or is one of the `inputs`.
    """
    if format is not None and format not in formats:
        raise UsageError(f"`format` is {format!r}, but has to be one of {', '.join(formats)}.")
    chosen = None if format is None else formats[format]
    if path in (None, "-"):
        if chosen is not None and chosen.lines is None:
            raise UsageError(
                f"`format` = {chosen.name} cannot go to stdout.", hint="Name a file with `output`."
            )
        return OutputTarget(None, chosen or next(iter(formats.values())))
    if "://" in str(path):
        raise UsageError(f"`output` = {path}: results can be written to local files only.")
    target = Path(str(path))
    output = OutputTarget(
        target, chosen or _format_of(target, formats, is_folder=str(path).endswith(("/", "\\")))
    )
    _check(output, target, inputs)
    return output


def _format_of(path: Path, formats: Mapping[str, OutputFormat], *, is_folder: bool) -> OutputFormat:
    has_folders = TEXTS.name in formats
    if has_folders and (is_folder or path.is_dir()):
        return TEXTS
    bare = path.with_suffix("") if packing_of(path) else path
    suffixes = {suffix: form for form in formats.values() for suffix in form.suffixes}
    if bare.suffix.lower() in suffixes:
        return suffixes[bare.suffix.lower()]
    raise UsageError(
        f"`output` = {path}: the suffix is not that of a known format.",
        hint=f"Set `format` = {'|'.join(formats)}, or use a suffix of {', '.join(suffixes)}"
        f"{', or in / for a folder of texts' if has_folders else ''}.",
    )


def _check(output: OutputTarget, path: Path, inputs: Iterable[Path]) -> None:
    name = f"`output` = {path}"
    if path.resolve() in {source.resolve() for source in inputs}:
        raise UsageError(f"{name} is also the input, which would be overwritten.", hint="Name another file.")
    target = path.resolve()
    if not target.parent.is_dir():
        raise UsageError(f"`output` = {target}: there is no folder {target.parent}.", hint="Create it first.")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"`output` = {target}: the folder {target.parent} cannot be written to.")
    form, packing = output.format, packing_of(path)
    if form.needs_pyarrow or packing == ".zst":
        need_pyarrow(str(path))
    if packing and form.lines is None:
        raise UsageError(
            f"{name}: {form.name} cannot be compressed again.", hint="Leave out the last suffix."
        )
    if form.folder is not None:
        check_replaceable(path)
    elif path.is_dir():
        raise UsageError(f"{name} is a folder, but {form.name} is one file.", hint="Name a file in it.")


def packing_of(path: Path) -> str:
    """Return the suffix of the compression; "" without compression."""
    return path.suffix.lower() if path.suffix.lower() in (".gz", ".zst") else ""


@contextmanager
def open_beside(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write, compressed by its suffix. It is renamed to `path` after the block, or deleted.

    The target of a link is replaced, not the link. A device or a named pipe is written directly.
    """
    packing = packing_of(path.resolve())
    with replaced(path) as file, ExitStack() as stack:
        if packing == ".gz":  # without name and time, so equal results give equal files
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
            file = cast(BinaryIO, stack.enter_context(packed))
        elif packing == ".zst":
            need_pyarrow(path.name)
            import pyarrow as pa

            sink = pa.PythonFile(_OpenFile(file), mode="w")
            file = cast(BinaryIO, stack.enter_context(pa.CompressedOutputStream(sink, "zstd")))
        yield file


class _OpenFile:
    """A file that ignores `close` by pyarrow, because the owner still has to flush it to the disk."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.write, self.flush = file.write, file.flush

    def close(self) -> None:
        """Do nothing: the owner closes the file."""

"""The output of a batch: checked at once, opened when there are results."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, cast, get_args

from gencli.batch.extras import need_pyarrow
from gencli.batch.outputs.beside import check_writable, open_beside, packing_of
from gencli.batch.outputs.columns import TextTarget
from gencli.batch.outputs.folder import check_replaceable, folder_of_texts
from gencli.batch.outputs.jsonl import JsonLines, OpenAILines
from gencli.batch.outputs.parquet import parquet_rows
from gencli.batch.outputs.table import TableLines
from gencli.batch.records import Outcome
from gencli.batch.survey import Kind
from gencli.errors import GenerationError, UsageError

__all__ = ["Format", "Output", "RowWriter", "plan_output"]

Format = Literal["jsonl", "openai", "csv", "tsv", "parquet", "texts"]
_FORMATS: tuple[Format, ...] = get_args(Format)
_SUFFIXES: Mapping[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


class RowWriter(Protocol):
    """Writes outcomes in the order of the output."""

    def write(self, outcome: Outcome) -> None:
        """Write one row."""
        ...


@dataclass(frozen=True, slots=True)
class Output:
    """Path and format of the results; `path` is None for stdout."""

    path: Path | None
    format: Format

    @contextmanager
    def open(
        self, kept: Mapping[str, Kind] | None = None, *, stdout: TextTarget | None = None
    ) -> Iterator[RowWriter]:
        """Open a writer. The output gets its name after the block; after an exception there is none.

        `kept` are the input columns for tables (Survey.columns); outcomes hold their values as `input`.
        Raises GenerationError if writing fails.
        """
        kept = kept or {}
        try:
            if self.path is None:
                yield _lines(self.format, cast(TextTarget, stdout), kept)
            elif self.format == "texts":
                with folder_of_texts(self.path) as texts:
                    yield texts
            else:
                with open_beside(self.path) as file, _in_file(self.format, file, kept) as writer:
                    yield writer
        except OSError as error:
            where = self.path or "stdout"
            raise GenerationError(f"Cannot write to {where}: {error.strerror or error}.") from error


def plan_output(
    path: str | None,
    format: str | None = None,  # noqa: A002
    *,
    inputs: Iterable[Path] = (),
) -> Output:
    """Return the output of the options `output` and `format`; the paths `-` and None are stdout.

    Without a format the suffix decides; stdout is JSON Lines. Raises UsageError for a path that cannot be
    written, and for one of the `inputs`.
    """
    if format is not None and format not in _FORMATS:
        raise UsageError(f"`format` is {format!r}, but has to be one of {', '.join(_FORMATS)}.")
    chosen: Format | None = format
    if path in (None, "-"):
        if chosen in ("parquet", "texts"):
            raise UsageError(f"`format` = {chosen} cannot go to stdout.", hint="Name a file with `output`.")
        return Output(None, chosen or "jsonl")
    if "://" in str(path):
        raise UsageError(f"`output` = {path}: results can be written to local files only.")
    place = Path(str(path))
    output = Output(place, chosen or _format_of(place, is_folder=str(path).endswith(("/", "\\"))))
    _check(output, place, inputs)
    return output


def _format_of(path: Path, *, is_folder: bool) -> Format:
    if is_folder or path.is_dir():
        return "texts"
    bare = path.with_suffix("") if packing_of(path) else path
    if bare.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[bare.suffix.lower()]
    raise UsageError(
        f"`output` = {path}: the suffix is not that of a known format.",
        hint=f"Set `format` = {'|'.join(_FORMATS)}, or use a suffix of {', '.join(_SUFFIXES)}, "
        "or in / for a folder of texts.",
    )


def _check(output: Output, path: Path, inputs: Iterable[Path]) -> None:
    said = f"`output` = {path}"
    if path.resolve() in {one.resolve() for one in inputs}:
        raise UsageError(f"{said} is also the input, which would be overwritten.", hint="Name another file.")
    check_writable(path.resolve())
    if output.format == "parquet":
        need_pyarrow(str(path))
    if packing_of(path) and output.format in ("parquet", "texts"):
        raise UsageError(
            f"{said}: {output.format} cannot be compressed again.", hint="Leave out the last suffix."
        )
    if packing_of(path) == ".zst":
        need_pyarrow(str(path))
    if output.format == "texts":
        check_replaceable(path)
    elif path.is_dir():
        raise UsageError(f"{said} is a folder, but {output.format} is one file.", hint="Name a file in it.")


@contextmanager
def _in_file(form: Format, file: BinaryIO, kept: Mapping[str, Kind]) -> Iterator[RowWriter]:
    if form == "parquet":
        with parquet_rows(file, kept) as rows:
            yield rows
        return
    # A lone surrogate cannot be encoded; it is written as an escape, which JSON reads back.
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", errors="backslashreplace")
    try:
        yield _lines(form, text, kept)
        text.flush()
    finally:
        text.detach()


def _lines(form: Format, target: TextTarget, kept: Mapping[str, Kind]) -> RowWriter:
    if form == "openai":
        return OpenAILines(target)
    if form in ("csv", "tsv"):
        return TableLines(target, kept, delimiter="," if form == "csv" else "\t")
    return JsonLines(target)

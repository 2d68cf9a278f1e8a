"""The output of a batch: checked before the run, opened once there are results."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gencli.batch.extras import need_pyarrow
from gencli.batch.outputs import OUTPUT_FORMATS
from gencli.batch.outputs.base import OutputFormat, RowWriter, Table, TextTarget
from gencli.batch.outputs.beside import check_writable, open_beside, packing_of
from gencli.batch.outputs.columns import generated
from gencli.batch.outputs.folder import TEXTS, check_replaceable
from gencli.errors import GenerationError, UsageError

__all__ = ["Output", "plan_output"]


@dataclass(frozen=True, slots=True)
class Output:
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
            with self._open(table or generated(), stdout) as writer:
                yield writer
        except OSError as error:
            where = self.path or "stdout"
            raise GenerationError(f"Cannot write to {where}: {error.strerror or error}.") from error

    @contextmanager
    def _open(self, table: Table, stdout: TextTarget | None) -> Iterator[RowWriter]:
        form, path = self.format, self.path
        if path is None:
            assert form.lines is not None  # plan_output rejects other formats on stdout
            with form.lines(cast(TextTarget, stdout), table) as writer:
                yield writer
        elif form.folder is not None:
            with form.folder(path) as writer:
                yield writer
        elif form.file is not None:
            with open_beside(path) as file, form.file(file, table) as writer:
                yield writer
        elif form.lines is not None:
            # A lone surrogate cannot be encoded. JSON reads it back from its escape.
            with open_beside(path) as file:
                text = io.TextIOWrapper(file, encoding="utf-8", newline="", errors="backslashreplace")
                try:
                    with form.lines(text, table) as writer:
                        yield writer
                    text.flush()
                finally:
                    text.detach()


def plan_output(
    path: str | None,
    format: str | None = None,  # noqa: A002
    *,
    inputs: Iterable[Path] = (),
    formats: Mapping[str, OutputFormat] = OUTPUT_FORMATS,
) -> Output:
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
        return Output(None, chosen or next(iter(formats.values())))
    if "://" in str(path):
        raise UsageError(f"`output` = {path}: results can be written to local files only.")
    place = Path(str(path))
    output = Output(place, chosen or _format_of(place, formats, is_folder=str(path).endswith(("/", "\\"))))
    _check(output, place, inputs)
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


def _check(output: Output, path: Path, inputs: Iterable[Path]) -> None:
    said = f"`output` = {path}"
    if path.resolve() in {one.resolve() for one in inputs}:
        raise UsageError(f"{said} is also the input, which would be overwritten.", hint="Name another file.")
    check_writable(path.resolve())
    form, packing = output.format, packing_of(path)
    if form.needs_pyarrow or packing == ".zst":
        need_pyarrow(str(path))
    if packing and form.lines is None:
        raise UsageError(
            f"{said}: {form.name} cannot be compressed again.", hint="Leave out the last suffix."
        )
    if form.folder is not None:
        check_replaceable(path)
    elif path.is_dir():
        raise UsageError(f"{said} is a folder, but {form.name} is one file.", hint="Name a file in it.")

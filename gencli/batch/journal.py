"""What a batch keeps so that it can be resumed: the journal of finished rows, the fingerprint of all
values that determine its texts, the places of its files, and the trace. The journal survives the end of
the process at any time: each line is appended with one write and ends with a checksum, so only the last
line can be incomplete, and is then dropped. A row takes 17 bytes of memory.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gencli import __version__
from gencli.batch.batch_plan import BatchPlan
from gencli.batch.batch_records import Outcome, Row
from gencli.batch.batch_rows import Survey
from gencli.batch.output_formats import OutputTarget
from gencli.config.job import Job
from gencli.config.job_parts import named_models
from gencli.config.layers import files_of
from gencli.config.run_options import OPTIONS
from gencli.config.settings import Settings
from gencli.core.events import Error, Finish
from gencli.errors import GenerationError, UsageError
from gencli.explain.forks import text_head
from gencli.explain.token_record import Views
from gencli.explain.trace_file import sample_lines
from gencli.files import NO_LINK, locked, new_file, open_regular
from gencli.json_text import as_float
from gencli.models.files.checkpoint import identify_model
from gencli.models.files.gguf_header import is_gguf, read_gguf_head
from gencli.models.files.local_models import find_local
from gencli.models.files.model_files import OnBytes
from gencli.results.run_record import RunInfo
from processors.request_values import Verification

VERSION = 2  # version 1 had no checksums
_KEY = "gencli_journal"
_CHECK = b', "check": '
_TRACED = "traced"
_MAX_HEADER = 2**24  # bytes of a header
_APPENDING = os.O_RDWR | os.O_CREAT | os.O_APPEND | NO_LINK | getattr(os, "O_BINARY", 0)


def read_header(path: Path) -> dict[str, Any] | None:
    """Return the header of a journal; None if it is empty. Raises UsageError for another kind of file."""
    try:
        with open_regular(path) as file:
            line = file.readline(_MAX_HEADER)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    if not line.endswith(b"\n"):  # the process was killed before the first row
        return None
    header = None
    with suppress(ValueError, RecursionError):
        header = json.loads(line)
    if not isinstance(header, dict) or not isinstance(version := header.get(_KEY), int):
        raise UsageError(f"{path} is not a journal of a batch.", hint="`overwrite` starts a new run.")
    if version != VERSION:
        raise UsageError(
            f"{path} is a journal of version {version}, and this gencli has version {VERSION}: its rows "
            f"{'have no checksums' if version < VERSION else 'are of a later gencli'}.",
            hint="Finish it with the version that started it, or start a new run with `overwrite`.",
        )
    return _checked(line, f"{path} is damaged in line 1")


def _checked(line: bytes, fault: str) -> dict[str, Any]:
    data, _, check = line.rpartition(_CHECK)
    if check != _checksum(data) + b"}\n":
        raise UsageError(f"{fault}: its checksum is wrong.", hint="`overwrite` starts a new run.")
    entry: dict[str, Any] = json.loads(data + b"}")
    return entry


def _checksum(data: bytes) -> bytes:
    return b'"%s"' % blake2b(data, digest_size=8).hexdigest().encode()


def _appended(handle: int, data: bytes, size: int, name: str, hint: str = "") -> int:
    """Append to a file of `size` bytes in one write; return its new size.

    Raises GenerationError if the write fails; the file then keeps its size.
    """
    reason = "only a part of a row was written"
    try:
        written = os.write(handle, data)
    except OSError as error:
        written, reason = 0, error.strerror or str(error)
    if written == len(data):
        return size + written
    with suppress(OSError):
        os.ftruncate(handle, size)
    raise GenerationError(f"{name} cannot be written: {reason}.", hint=hint)


class Journal:
    """Appends outcomes of rows and reads them back; the last outcome of a row is the valid one.

    `traced`: number of bytes of the trace that belong to the rows present at opening.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        """Open a journal, or create one with this header; an incomplete last line is removed."""
        self.path, self.traced = path, 0
        self._rows, self._offsets, self._failed = array("q"), array("q"), bytearray()
        is_old = read_header(path) is not None
        try:
            self._handle = os.open(path, _APPENDING | (0 if is_old else os.O_TRUNC), 0o644)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
        self._size = 0
        if is_old:
            self._scan()
            os.ftruncate(self._handle, self._size)
        else:
            self._write({_KEY: VERSION, **header})

    def close(self) -> None:
        """Close the file. Only now its rows survive a loss of power: `append` does not wait for the disk."""
        if self._handle >= 0:
            with suppress(OSError):
                os.fsync(self._handle)
            os.close(self._handle)
            self._handle = -1

    def remove(self) -> None:
        """Delete the journal of a batch whose output has all rows."""
        self.close()
        self.path.unlink()

    def append(self, outcome: Outcome, *, traced: int | None = None) -> None:
        """Append a row; `traced`: size in bytes of the trace including the row's lines.

        Raises GenerationError if the write fails; earlier rows are safe.
        """
        offset = self._size
        head = {"row": outcome.index, "failed": outcome.is_error, "id": outcome.id}
        size = {} if traced is None else {_TRACED: traced}
        self._write({**head, **size, "result": outcome.result})
        self._index(head, offset)

    def _write(self, entry: Mapping[str, Any]) -> None:
        # A line is a JSON object whose last member is the checksum of the others.
        data = json.dumps(entry, default=as_float).encode().removesuffix(b"}")
        hint = "The rows in it are safe; `resume` continues the run."
        line = data + _CHECK + _checksum(data) + b"}\n"
        self._size = _appended(self._handle, line, self._size, str(self.path), hint)

    def _scan(self) -> None:
        """Index all rows; `_size` is then that without an incomplete last line."""
        with self.path.open("rb") as file:
            self._size = len(file.readline())
            for number, line in enumerate(file, start=2):
                if not line.endswith(b"\n"):
                    break
                entry = _checked(line, f"{self.path} is damaged in line {number}")
                self._index(entry, self._size)
                self.traced = entry.get(_TRACED, self.traced)
                self._size += len(line)

    def _index(self, entry: Mapping[str, Any], offset: int) -> None:
        self._rows.append(entry["row"])
        self._offsets.append(offset)
        self._failed.append(entry["failed"])

    def _latest(self) -> NDArray[np.int64]:
        """Return the positions of the last entry of each row, ordered by row, int64 [number of rows]."""
        rows = np.array(self._rows, dtype=np.int64)
        order = np.argsort(rows, kind="stable")
        is_last = np.diff(rows[order], append=-1) != 0  # -1 is no row
        latest: NDArray[np.int64] = order[is_last]
        return latest

    def counts(self) -> tuple[int, int]:
        """Return the number of rows with an entry, and of how many the last entry is a failure."""
        latest = self._latest()
        return len(latest), int(np.frombuffer(self._failed, dtype=np.uint8)[latest].sum())

    def pending(self, rows: Iterable[Row], *, with_failed: bool = False) -> Iterator[Row]:
        """Yield the rows that are not finished; with `with_failed` also failed ones. Rows have to ascend.

        Rows appended during the iteration are not noticed.
        """
        latest = self._latest()
        if with_failed:
            latest = latest[np.frombuffer(self._failed, dtype=np.uint8)[latest] == 0]
        finished = iter(array("q", np.array(self._rows, dtype=np.int64)[latest].tobytes()))
        head = next(finished, None)
        for row in rows:
            while head is not None and head < row.record.index:
                head = next(finished, None)
            if head != row.record.index:
                yield row

    def outcomes(self, *, by_row: bool = True) -> Iterator[Outcome]:
        """Yield the last outcome of each row, by index or as they were appended; one at a time is read."""
        offsets = np.array(self._offsets, dtype=np.int64)[self._latest()]
        with self.path.open("rb") as file:
            for offset in offsets if by_row else np.sort(offsets):
                file.seek(offset)
                entry = _checked(file.readline(), f"{self.path} is damaged at byte {offset}")
                yield Outcome(entry["row"], entry["id"], entry["result"], entry["failed"])


@dataclass(frozen=True, slots=True)
class Places:
    """Resolved paths of the output and its journal, which lies beside the file that a link leads to."""

    output: Path
    journal: Path

    @classmethod
    def of(cls, output: OutputTarget) -> Places | None:
        """Return the paths of an output; None for stdout, devices and pipes, which have no journal."""
        if output.path is None:
            return None
        path = output.path.resolve()
        is_ordinary = not path.exists() or path.is_file() or path.is_dir()
        return cls(path, path.with_name(f"{path.name}.journal")) if is_ordinary else None

    def claim(self, plan: BatchPlan) -> bool:
        """Return whether there is anything to run: not if `resume` meets an output without a journal.

        Overwriting creates the journal immediately, so an old output is never mistaken for the new one.
        Raises UsageError if output or journal exist and the plan neither resumes nor overwrites.
        """
        has_output = any(self.output.iterdir()) if self.output.is_dir() else self.output.exists()
        if plan["resume"]:
            return self.journal.exists() or not has_output
        if plan["overwrite"]:
            try:
                os.close(new_file(self.journal))
            except OSError as error:
                raise UsageError(f"{self.journal} cannot be written: {error.strerror}.") from error
        elif read_header(self.journal) is not None:
            raise UsageError(
                f"{self.journal} exists: a run was interrupted, or some of its rows failed.",
                hint="`resume` continues it, `overwrite` starts a new run.",
            )
        elif has_output:
            raise UsageError(f"{self.output} exists already.", hint="`overwrite` replaces it.")
        return True

    def open(self, fingerprint: Mapping[str, Any], *, company: Collection[str], is_free: bool) -> Journal:
        """Return the existing journal or a new one. Raises UsageError with the values changed since it began.

        `company`: names of values that decide which texts share a forward pass; they may change if `is_free`.
        """
        header = read_header(self.journal)
        changed = differences(header["fingerprint"], fingerprint) if header else {}
        if is_free:
            changed = {name: sentence for name, sentence in changed.items() if name not in company}
        if changed:
            reason, way = "", "start a new run with `overwrite`"
            if changed.keys() <= set(company):
                reason = " In this number format that may change texts."
                way = "continue anyway with `allow_other_batch`"
            raise UsageError(
                f"{self.journal} belongs to another run: {'; '.join(changed.values())}.{reason}",
                hint=f"Undo the change and `resume`, or {way}.",
            )
        return Journal(self.journal, {"fingerprint": fingerprint})


# Number and size of the samples read from a weight file; two trainings of a model differ in all of them.
_SAMPLES, _BYTES = 16, 65536
_MAX_SHOWN = 300  # characters of a value in a message
_FILE = "file of "  # before the key of an option whose value names a file
_DIGESTS = ("input", "model files", "plugins", _FILE)  # beginnings of the names whose values are not shown
# Options that do not change texts, or that the fingerprint records in another form.
_BESIDE = frozenset(
    "seed file threads debug model preset trust_remote_code offline download memory_check cuda_graphs "
    "watermark_key".split()
)
# Options that determine which texts and drafts share a forward pass.
_COMPANY = {"max_batch", "async_steps", "draft", "draft_tokens", "draft_tree", "draft_min_p"}


def fingerprint(
    settings: Settings,
    job: Job,
    survey: Survey,
    columns: Mapping[str, Any],
    number_format: str,
    on_bytes: OnBytes | None = None,
) -> dict[str, Any]:
    """Return by name the values that must be equal in all parts of a resumed run.

    `columns`: options that control how records become rows. `on_bytes` is called with the number of hashed
    bytes of weights, and with their total.
    """
    options = {
        f"`{entry.key}`": settings[entry.key]
        for entry in OPTIONS
        if entry.section != "Output" and not entry.stage and entry.key not in _BESIDE
    }
    name = settings["model"]
    folder = find_local(name) if name != "fake" else None
    weights: dict[str, str | None] = {}
    for key, model in named_models(settings, job.registry).items():
        if key != "draft" or _drafts_decide(settings, survey):
            identity = identify_model(model, on_bytes)
            prefix = "" if key == "model" else f"`{key}` "
            weights[f"{prefix}revision"] = identity.revision if identity else None
            weights[f"{prefix}weights_sha256"] = identity.sha256 if identity else None
    values = {
        "gencli": __version__,
        "model": name,
        "model files": folder_digest(folder) if folder else "",
        "number format": number_format,
        **weights,
        "plugins": [_with_digest(text) for text in settings["plugin"]],
        "chain": job.assembly.chain.to_list(),
        "seed": job.seed,
        **options,
        **{f"{_FILE}`{k}`": file["sha256"] for k, file in files_of(settings).items() if k not in _BESIDE},
        **columns,
        "number of rows": survey.num_rows,
        "input": survey.digest,
    }
    return dict(json.loads(json.dumps(values)))  # with the types of a JSON header


def company(settings: Settings, survey: Survey) -> frozenset[str]:
    """Return the fingerprint names that change no text if the number format is batch-invariant."""
    keys = {"max_batch", "async_steps"} if _drafts_decide(settings, survey) else _COMPANY
    return frozenset(f"{kind}`{key}`" for key in keys for kind in ("", _FILE))


def _drafts_decide(settings: Settings, survey: Survey) -> bool:
    return not Verification(settings["verify"]).is_exact or "verify" in survey.options


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Return a sentence for each changed value, by name; digests and long values are not shown.

    Revisions are not compared: a revision with equal files and weights is the same model.
    """
    changed = {}
    for name in [*before, *(name for name in now if name not in before)]:
        old, new = before.get(name), now.get(name)
        if old != new and not name.endswith("revision"):
            sentence = f"{name} was {old!r} and is {new!r}"
            is_digest = name.startswith(_DIGESTS) or len(sentence) > _MAX_SHOWN
            changed[name] = f"{name} changed" if is_digest else sentence
    return changed


def folder_digest(folder: Path) -> str:
    """Return a hash of a model's files: samples of weight files, all bytes of other files.

    The hash does not depend on folder names or times, so a copy of a model has the same hash.
    """
    digest = blake2b(digest_size=16)
    kinds = ("*.json", "*.jinja", "*.model", "*.txt", "*.py", "*.safetensors")
    if is_gguf(folder):
        files = set(read_gguf_head(folder).files)
    else:
        files = {path for kind in kinds for path in folder.glob(kind)}
    for path in sorted(files):
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}\n".encode())
        offsets: Iterable[int] = range(0, size, _BYTES)
        if path.suffix in (".safetensors", ".gguf") and size > _SAMPLES * _BYTES:
            offsets = (part * (size - _BYTES) // (_SAMPLES - 1) for part in range(_SAMPLES))
        with path.open("rb") as file:
            for offset in offsets:
                file.seek(offset)
                digest.update(file.read(_BYTES))
    return digest.hexdigest()


def _with_digest(plugin: str) -> str:
    # With a hash of the code, if the plug-in is a file.
    path = Path(plugin)
    if not path.is_file():
        path = Path(plugin.rpartition(":")[0] or plugin)
    return f"{plugin} {blake2b(path.read_bytes(), digest_size=8).hexdigest()}" if path.is_file() else plugin


_BLOCK = 1 << 16  # bytes


def row_trace(
    row: Row, info: RunInfo, ends: Sequence[Finish | Error], views: Views, prompt_ids: tuple[int, ...]
) -> str:
    """Return the lines of a row that has ended, sample by sample; "" without a trace."""
    if info.job.trace is None or info.tokenizer is None:
        return ""
    head = text_head(info, row.prompt or "", prompt_ids)
    if row.messages:
        head["messages"] = list(row.messages)
    return "".join(
        line for end in ends for line in sample_lines(row.id, end, head, views.of(end.sample), info.tokenizer)
    )


def check_trace(path: str | None, output: OutputTarget, taken: Iterable[Path]) -> None:
    """Raise UsageError for a trace that is another file of the batch, or not a regular file."""
    if path is None:
        return
    trace, target = f"`trace` = {path}", Path(path).resolve()
    if target in {other.resolve() for other in taken}:
        raise UsageError(f"{trace} is also the input, the output or the summary.", hint="Name another file.")
    if output.path is not None and output.format.folder and output.path.resolve() in target.parents:
        raise UsageError(f"{trace} is in the output, a folder of texts only.", hint="Name a file beside it.")
    if target.exists() and not target.is_file():
        raise UsageError(f"{trace} is no regular file.", hint="A batch appends to its trace: name a file.")


def refuse_old_trace(path: str | None, plan: BatchPlan, places: Places | None) -> None:
    """Raise UsageError if a new batch would replace an earlier trace without `overwrite`."""
    is_begun = places is not None and read_header(places.journal) is not None
    if path is None or is_begun or plan["overwrite"] or not Path(path).exists():
        return
    way = "`overwrite` replaces it, with the output." if places else "Name another file, or delete it."
    raise UsageError(f"`trace` = {path} exists already.", hint=way)


@contextmanager
def opened_trace(path: str | None, size: int = 0) -> Iterator[TraceFile | None]:
    """Lock and open the trace of a batch, whose finished rows take `size` bytes; None without a trace."""
    if path is None:
        yield None
        return
    with (
        locked(Path(path).resolve(), hint="Give each batch a trace of its own."),
        closing(TraceFile(Path(path), size)) as trace,
    ):
        yield trace


class TraceFile:
    """Appends the lines of rows, each row's in one write, so that only the last row can be incomplete."""

    def __init__(self, path: Path, size: int = 0) -> None:
        """Open the file and drop the bytes from `size` on, the lines of unfinished rows.

        `missing`: number of bytes that the file lacks. Raises UsageError if it is not writable.
        """
        self.path = path
        try:
            self._handle = os.open(path, _APPENDING, 0o644)
        except OSError as error:
            raise UsageError(f"`trace` = {path}: cannot be written: {error.strerror}.") from error
        self._size = size if os.fstat(self._handle).st_size >= size else self._whole_lines()
        self.missing = size - self._size
        os.ftruncate(self._handle, self._size)

    def append(self, lines: str) -> int:
        """Append the lines of a row; return the file's size in bytes. Raises GenerationError."""
        data = lines.encode("utf-8", "backslashreplace")  # JSON reads a lone surrogate from its escape
        self._size = _appended(self._handle, data, self._size, f"`trace` = {self.path}")
        return self._size

    def close(self) -> None:
        """Close the file. Only now its lines survive a loss of power: `append` does not wait for the disk."""
        with suppress(OSError):
            os.fsync(self._handle)
        os.close(self._handle)

    def _whole_lines(self) -> int:
        """Return the size in bytes without an incomplete last line."""
        end = os.lseek(self._handle, 0, os.SEEK_END)
        while end:
            start = max(0, end - _BLOCK)
            os.lseek(self._handle, start, os.SEEK_SET)
            newline = os.read(self._handle, end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return 0

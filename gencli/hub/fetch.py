"""Fetch a model from the hub into the cache: plan, transfer the files, then link the snapshot."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock

from gencli.errors import ModelError
from gencli.files import replaced
from gencli.hub.cache import UNFINISHED, hub_cache, repository_folder, repository_lock
from gencli.hub.listing import (
    Listing,
    RemoteFile,
    gguf_names,
    list_files,
    refuse_unnamed_gguf,
    side_files,
    weight_names,
)
from gencli.hub.names import INDEX, HubName
from gencli.hub.transfer import Stopped, Transfer
from gencli.models.files.checkpoint import check_architecture
from gencli.models.files.json_files import read_object
from gencli.models.watch import OnBytes

__all__ = ["FetchPlan", "fetch", "plan_fetch"]

_WORKERS = 4
_SPARE = 64 * 2**20  # bytes that stay free on the disk
_CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """All files of a model, its missing files, and the bytes to transfer (`todo`)."""

    listing: Listing
    files: tuple[RemoteFile, ...]
    missing: tuple[RemoteFile, ...]
    todo: int

    @property
    def folder(self) -> Path:
        """The folder of the snapshot."""
        return repository_folder(self.listing.name) / "snapshots" / self.listing.commit

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(file.size for file in self.files)

    @property
    def is_complete(self) -> bool:
        """Whether all files are in the snapshot."""
        return not self.missing and all((self.folder / file.path).exists() for file in self.files)


def plan_fetch(name: HubName, *, with_code: bool = False) -> FetchPlan:
    """Plan the download of a model. Transfers only the configuration and the index of weights.

    Raises ModelError for a model that does not exist, that gencli cannot run, or that does not fit on the
    disk.
    """
    listing = list_files(name)
    if name.gguf:
        return _plan(listing, [listing.files[path] for path in gguf_names(listing)])
    refuse_unnamed_gguf(listing)
    if _CONFIG not in listing.files:
        kind = "an adapter, not a model" if "adapter_config.json" in listing.files else "no model"
        raise ModelError(f"{name} has no {_CONFIG}: it is {kind} that gencli can load.")
    heads = [listing.files[path] for path in (_CONFIG, INDEX) if path in listing.files]
    blobs = _blobs(name)
    _transfer(listing, [file for file in heads if not _is_cached(file, blobs)], lambda count: None)
    config = read_object(blobs / listing.files[_CONFIG].blob)
    check_architecture(Path(str(name)), config, trust_remote_code=with_code)
    index = read_object(blobs / listing.files[INDEX].blob) if INDEX in listing.files else {}
    weights = weight_names(listing, index)
    chosen = {file.path: file for file in side_files(listing, with_code=with_code)}
    chosen |= {path: listing.files[path] for path in sorted(weights)}
    return _plan(listing, chosen.values())


def _plan(listing: Listing, chosen: Iterable[RemoteFile]) -> FetchPlan:
    """Plan the download of the chosen files."""
    files, blobs = tuple(chosen), _blobs(listing.name)
    missing = tuple(file for file in files if not _is_cached(file, blobs))
    todo = sum(file.size - _done(file, blobs) for file in {file.blob: file for file in missing}.values())
    _require_space(listing.name, todo)
    return FetchPlan(listing, files, missing, todo)


def fetch(plan: FetchPlan, on_bytes: OnBytes | None = None) -> Path:
    """Transfer the missing files, and return the model's folder. Raises ModelError if that fails.

    `on_bytes` is called with the present and the total bytes. Transferred parts are kept if the process ends;
    the folder is created when all files are complete.
    """
    blobs = _blobs(plan.listing.name)
    missing = [file for file in plan.missing if not _is_cached(file, blobs)]
    count = {"done": plan.size - sum(file.size - _done(file, blobs) for file in missing)}
    lock = Lock()

    def add(size: int) -> None:
        with lock:
            count["done"] += size
            if on_bytes is not None:
                on_bytes(count["done"], plan.size)

    add(0)
    _transfer(plan.listing, missing, add)
    _link(plan)
    return plan.folder


def _transfer(listing: Listing, files: Iterable[RemoteFile], on_bytes: Callable[[int], None]) -> None:
    """Transfer files in parallel, each content once. The first failure ends all transfers."""
    once = {file.blob: file for file in files}
    if not once:
        return
    stop = Event()
    transfer = Transfer(listing, _blobs(listing.name), on_bytes, stop)
    with repository_lock(listing.name), ThreadPoolExecutor(_WORKERS, "fetch") as pool:
        # Small files first, so that their failures are known before the weights are transferred.
        tasks = [pool.submit(transfer.fetch, file) for file in sorted(once.values(), key=_size)]
        try:
            ended, _ = wait(tasks, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
        for failed in (task.exception() for task in ended):
            if failed is not None and not isinstance(failed, Stopped):
                raise failed


def _link(plan: FetchPlan) -> None:
    """Link the files under their names, the configuration last: a folder without it is not a model."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(plan.files, key=lambda file: file.path == _CONFIG):
        path, blob = plan.folder / file.path, _blobs(plan.listing.name) / file.blob
        if path.exists():
            continue
        with suppress(FileNotFoundError):
            path.unlink()  # a dangling link
        try:
            path.symlink_to(Path("..", "..", "blobs", file.blob))
        except OSError:  # Windows restricts symbolic links
            os.link(blob, path)
    name = plan.listing.name
    if name.revision != plan.listing.commit:
        ref = repository_folder(name) / "refs" / name.revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        with replaced(ref) as stream:
            stream.write(plan.listing.commit.encode())


def _blobs(name: HubName) -> Path:
    blobs = repository_folder(name) / "blobs"
    try:
        blobs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"The hub's cache cannot be written: {error}.", hint="HF_HOME sets another folder."
        ) from error
    return blobs


def _is_cached(file: RemoteFile, blobs: Path) -> bool:
    """Whether the content is in the cache. Removes a file of another size."""
    path = blobs / file.blob
    if path.is_file() and path.stat().st_size == file.size:
        return True
    path.unlink(missing_ok=True)
    return False


def _done(file: RemoteFile, blobs: Path) -> int:
    with suppress(OSError):
        return min(file.size, (blobs / f"{file.blob}{UNFINISHED}").stat().st_size)
    return 0


def _size(file: RemoteFile) -> int:
    return file.size


def _require_space(name: HubName, todo: int) -> None:
    free = shutil.disk_usage(_blobs(name)).free
    if todo and todo + _SPARE > free:
        raise ModelError(
            f"{name} takes {todo / 1e9:.1f} GB more, and {hub_cache()} has {free / 1e9:.1f} GB free.",
            hint="gencli models rm frees space; HF_HOME sets another folder.",
        )

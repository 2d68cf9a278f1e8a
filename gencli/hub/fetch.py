"""Fetch a model from the hub into the cache: looked at first, then transferred, linked when all is there."""

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
from gencli.hub.cache import UNFINISHED, alone, hub_cache, place_of
from gencli.hub.listing import Listing, RemoteFile, list_files, side_files, weight_names
from gencli.hub.names import INDEX, HubName
from gencli.hub.transfer import Stopped, Transfer
from gencli.models.files.checkpoint import check_architecture
from gencli.models.files.json_files import read_object
from gencli.models.watch import OnBytes

__all__ = ["FetchPlan", "fetch", "plan_fetch"]

_WORKERS = 4
_SPARE = 64 * 2**20  # bytes that are to stay free
_CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What is to be fetched: all files, those that are missing, and the bytes to transfer."""

    listing: Listing
    files: tuple[RemoteFile, ...]
    missing: tuple[RemoteFile, ...]
    todo: int

    @property
    def folder(self) -> Path:
        """Where the model will be."""
        return place_of(self.listing.name) / "snapshots" / self.listing.commit

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing to do."""
        return not self.missing and all((self.folder / file.path).exists() for file in self.files)


def plan_fetch(name: HubName, *, with_code: bool = False) -> FetchPlan:
    """Ask the hub what there is; nothing but the configuration and the index of weights is transferred.

    Raises ModelError for a model that is not there, that gencli cannot run, or that the disk has no room for.
    """
    listing = list_files(name)
    if _CONFIG not in listing.files:
        kind = "an adapter, not a model" if "adapter_config.json" in listing.files else "no model"
        raise ModelError(f"{name} has no {_CONFIG}: it is {kind} that gencli can load.")
    heads = [listing.files[path] for path in (_CONFIG, INDEX) if path in listing.files]
    blobs = _blobs(name)
    _transfer(listing, [file for file in heads if not _is_there(file, blobs)], lambda count: None)
    config = read_object(blobs / listing.files[_CONFIG].blob)
    check_architecture(Path(str(name)), config, trust_remote_code=with_code)
    index = read_object(blobs / listing.files[INDEX].blob) if INDEX in listing.files else {}
    weights = weight_names(listing, index)
    chosen = {file.path: file for file in side_files(listing, with_code=with_code)}
    chosen |= {path: listing.files[path] for path in sorted(weights)}
    files = tuple(chosen.values())
    missing = tuple(file for file in files if not _is_there(file, blobs))
    todo = sum(file.size - _done(file, blobs) for file in {file.blob: file for file in missing}.values())
    _require_space(name, todo)
    return FetchPlan(listing, files, missing, todo)


def fetch(plan: FetchPlan, on_bytes: OnBytes | None = None) -> Path:
    """Transfer what is missing; the model's folder. Raises ModelError where that fails.

    `on_bytes` is called with the bytes that are there and all bytes. What was transferred stays if the
    process ends, and the folder appears when all of it is there.
    """
    blobs = _blobs(plan.listing.name)
    missing = [file for file in plan.missing if not _is_there(file, blobs)]
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
    """Transfer files side by side, each content once. The first failure ends all."""
    once = {file.blob: file for file in files}
    if not once:
        return
    stop = Event()
    transfer = Transfer(listing, _blobs(listing.name), on_bytes, stop)
    with alone(listing.name), ThreadPoolExecutor(_WORKERS, "fetch") as pool:
        # Small files first: what is wrong with them is known before the weights are here.
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
    """Give the files their names, the configuration last: without it a folder is none of a model's."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(plan.files, key=lambda file: file.path == _CONFIG):
        path, blob = plan.folder / file.path, _blobs(plan.listing.name) / file.blob
        if path.exists():
            continue
        with suppress(FileNotFoundError):
            path.unlink()  # a link to what is gone
        try:
            path.symlink_to(Path("..", "..", "blobs", file.blob))
        except OSError:  # Windows lets few users make links of that kind
            os.link(blob, path)
    name = plan.listing.name
    if name.revision != plan.listing.commit:
        ref = place_of(name) / "refs" / name.revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        with replaced(ref) as stream:
            stream.write(plan.listing.commit.encode())


def _blobs(name: HubName) -> Path:
    blobs = place_of(name) / "blobs"
    try:
        blobs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"The hub's cache cannot be written: {error}.", hint="HF_HOME moves it.") from error
    return blobs


def _is_there(file: RemoteFile, blobs: Path) -> bool:
    """Whether the content is in the cache; what has another size is dropped."""
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
            hint="gencli models rm makes room; HF_HOME moves the cache.",
        )

"""Download a model from the hub into the cache: plan, transfer the files that gencli needs, then link the
snapshot. A file is resumed after an interruption and kept only if its hash is correct; requests that
may succeed later are retried.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import sha1, sha256
from pathlib import Path
from threading import Event, Lock
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

from huggingface_hub import constants, get_session, get_token, hf_hub_url
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

from gencli.errors import ModelError
from gencli.files import NO_LINK, replaced
from gencli.models.files.checkpoint import check_architecture
from gencli.models.files.local_models import (
    COMMIT,
    INDEX,
    SIDE_FILES,
    UNFINISHED,
    WEIGHTS,
    HubName,
    choose_gguf,
    endpoint,
    gguf_models,
    hub_cache,
    repository_folder,
    repository_lock,
)
from gencli.models.files.model_files import OnBytes, read_object
from gencli.version import __version__

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
        return repository_folder(self.listing.name) / "snapshots" / self.listing.commit

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def is_complete(self) -> bool:
        return not self.missing and all((self.folder / file.path).exists() for file in self.files)


def plan_fetch(name: HubName, *, with_code: bool = False) -> FetchPlan:
    """Plan the download of a model. Transfers only the configuration and the index of weights.

    Raises ModelError for a model that does not exist, that gencli cannot run, or that does not fit on the
    disk.
    """
    listing = list_files(name)
    if name.gguf:
        return _plan(listing, [listing.files[path] for path in gguf_names(listing)])
    models = gguf_models(listing.files)
    if models and not any(path.endswith(".safetensors") for path in listing.files):
        raise ModelError(f"{name} has GGUF files: {', '.join(models)}.", hint=_by_name(name, models))
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
    patterns = (*SIDE_FILES, _CODE) if with_code else SIDE_FILES
    chosen = {
        path: file
        for path, file in listing.files.items()
        if any(fnmatchcase(path, pattern) for pattern in patterns)
    }
    chosen |= {path: listing.files[path] for path in sorted(weights)}
    return _plan(listing, chosen.values())


def _plan(listing: Listing, chosen: Iterable[RemoteFile]) -> FetchPlan:
    files, blobs = tuple(chosen), _blobs(listing.name)
    missing = tuple(file for file in files if not _is_cached(file, blobs))
    todo = sum(file.size - _done(file, blobs) for file in {file.blob: file for file in missing}.values())
    free = shutil.disk_usage(blobs).free
    if todo and todo + _SPARE > free:
        raise ModelError(
            f"{listing.name} takes {todo / 1e9:.1f} GB more, and {hub_cache()} has {free / 1e9:.1f} GB free.",
            hint="gencli models rm frees space; HF_HOME sets another folder.",
        )
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
        tasks = [
            pool.submit(transfer.fetch, file) for file in sorted(once.values(), key=lambda file: file.size)
        ]
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


_CODE = "*.py"
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")  # a file at the top of the repository
_SHA1, _SHA256 = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")
_OTHERS = {".gguf": "GGUF", ".bin": "pickles", ".pt": "pickles", ".pth": "pickles", ".onnx": "ONNX",
           ".h5": "Keras", ".msgpack": "Flax"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on the hub. `blob` is its hash: a SHA-256, or git's SHA-1 of small files."""

    path: str
    size: int
    blob: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a model at a commit, by path, without those in subfolders."""

    name: HubName
    commit: str
    files: Mapping[str, RemoteFile]


def list_files(name: HubName) -> Listing:
    """Ask the hub for the files of a model. Raises ModelError for a failure or a malformed answer."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint(), library_name="gencli")
    timeout = constants.HF_HUB_ETAG_TIMEOUT
    try:
        info = retrying(
            lambda: api.model_info(name.repo, revision=name.revision, files_metadata=True, timeout=timeout)
        )
    except FAILURES as error:
        raise explain(error, name) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(name) from error
    if not COMMIT.fullmatch(str(info.sha)):
        raise _unreadable(name)
    plain = (sibling for sibling in info.siblings or () if _PLAIN.fullmatch(sibling.rfilename))
    files = (_file(sibling, name) for sibling in plain)
    return Listing(name, str(info.sha), {file.path: file for file in files})


def _file(sibling: Any, name: HubName) -> RemoteFile:
    lfs = sibling.lfs
    blob, size = (lfs.sha256, lfs.size) if lfs else (sibling.blob_id, sibling.size)
    pattern = _SHA256 if lfs else _SHA1
    if not isinstance(size, int) or size < 0 or not pattern.fullmatch(str(blob)):
        raise _unreadable(name)
    return RemoteFile(sibling.rfilename, size, blob)


def _unreadable(name: HubName) -> ModelError:
    return ModelError(
        f"The hub's answer about {name} is malformed.", hint="Is HF_ENDPOINT the address of a hub?"
    )


def gguf_names(listing: Listing) -> tuple[str, ...]:
    """Return the GGUF file selected by the name, or all of its parts. Raises ModelError if it is not one."""
    name = listing.name
    models = choose_gguf(listing.files, name.gguf)
    if len(models) == 1:
        return next(iter(models.values()))
    if models:
        raise ModelError(f"{name} may be any of {', '.join(models)}.", hint=_by_name(name, models))
    others = gguf_models(listing.files)
    contents = f"It has {', '.join(others)}." if others else "It has no GGUF files at its top."
    raise ModelError(f"{name.repo} has no GGUF file {name.gguf}. {contents}", hint=_by_name(name, others))


def _by_name(name: HubName, files: Mapping[str, object]) -> str:
    return f"Name one, as in {replace(name, gguf=next(iter(files)))}." if files else ""


def weight_names(listing: Listing, index: Mapping[str, Any]) -> Collection[str]:
    """Return the weight files: one, or those listed by the index. Raises ModelError if there are none."""
    files = listing.files
    if WEIGHTS in files:
        return {WEIGHTS}
    shards = index.get("weight_map")
    names = set(shards.values()) if isinstance(shards, dict) else set()
    if names and names <= files.keys():
        return {INDEX, *names}
    if names:
        raise ModelError(f"{listing.name} lacks weight files that its index names.")
    formats = sorted({_OTHERS[suffix] for path in files for suffix in _OTHERS if path.endswith(suffix)})
    others = f" Its weights are {' and '.join(formats)}." if formats else ""
    hint = "Loading pickles can run code. Look for a revision or a copy with safetensors."
    raise ModelError(
        f"{listing.name} has no weights as safetensors, which gencli loads.{others}",
        hint=hint if "pickles" in formats else "Look for a revision or a copy with safetensors.",
    )


_CHUNK = 2**20  # bytes hashed at once
_RANGE = re.compile(r"bytes (\d{1,18})-")
_BINARY = getattr(os, "O_BINARY", 0)


class Stopped(Exception):
    """Another file of the model has failed."""


class _Truncated(Exception):
    """The reply ended before the end of the file."""


class _Part:
    """The downloaded part of a file and its hash. `on_bytes` is called with each change of its size."""

    def __init__(self, stream: BinaryIO, file: RemoteFile, on_bytes: Callable[[int], None]) -> None:
        self._stream, self._file, self._on_bytes = stream, file, on_bytes
        self.done = os.fstat(stream.fileno()).st_size
        if self.done > file.size:
            self.done = file.size  # the plan counted no more
            self.restart()
        self._digest = self._new_digest()
        while chunk := stream.read(_CHUNK):
            self._digest.update(chunk)

    @property
    def is_correct(self) -> bool:
        """Whether the part has the hash stated by the hub."""
        return bool(self._digest.hexdigest() == self._file.blob)

    def add(self, chunk: bytes) -> None:
        self._stream.write(chunk)
        self._stream.flush()  # after a kill, the next process continues here
        self._digest.update(chunk)
        self.done += len(chunk)
        self._on_bytes(len(chunk))

    def restart(self) -> None:
        self._stream.seek(0)
        self._stream.truncate()
        self._on_bytes(-self.done)
        self.done, self._digest = 0, self._new_digest()

    def _new_digest(self) -> Any:
        if len(self._file.blob) == 64:
            return sha256()
        return sha1(b"blob %d\0" % self._file.size, usedforsecurity=False)  # git's hash of a file


class Transfer:
    """Downloads files of a listing into a folder of blobs.

    `on_bytes` is called with the bytes received, negative if a file restarts. `stop` ends all transfers.
    """

    def __init__(self, listing: Listing, blobs: Path, on_bytes: Callable[[int], None], stop: Event) -> None:
        self._listing, self._blobs, self._on_bytes, self._stop = listing, blobs, on_bytes, stop

    def fetch(self, file: RemoteFile) -> None:
        """Download a file. Raises ModelError if that fails; the part is kept."""
        if file.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
            raise ModelError(
                f"{file.path} of {self._listing.name} is larger than the hub sends in one piece.",
                hint=f"hf download {self._listing.name.repo} fetches it in parts.",
            )
        path = self._blobs / f"{file.blob}{UNFINISHED}"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK | _BINARY, 0o644)
            with os.fdopen(handle, "r+b") as stream:
                part = _Part(stream, file, self._on_bytes)
                is_resumed = part.done > 0
                self._fill(part, file)
                if not part.is_correct and is_resumed:  # the old part may come from another program
                    part.restart()
                    self._fill(part, file)
            if not part.is_correct:
                path.unlink()
                raise ModelError(
                    f"{file.path} of {self._listing.name} does not have the hash that the hub states.",
                    hint="The file was removed. If this happens again, the hub or a proxy changes the file.",
                )
            path.replace(self._blobs / file.blob)
        except OSError as error:
            raise ModelError(f"{path} cannot be written: {error.strerror or error}.") from error

    def _fill(self, part: _Part, file: RemoteFile) -> None:
        attempt, furthest = 0, part.done
        while part.done < file.size:
            try:
                self._read(part, file)
            except (*FAILURES, _Truncated) as error:
                attempt = 0 if part.done > furthest else attempt + 1
                furthest = max(furthest, part.done)
                seconds = retry_delay(error, attempt)
                if seconds is None or attempt == TRIES:
                    raise explain(error, self._listing.name) from error
                if self._stop.wait(seconds):
                    raise Stopped from None

    def _read(self, part: _Part, file: RemoteFile) -> None:
        """Download the missing bytes, as far as one reply contains them."""
        name = self._listing.name
        url = hf_hub_url(name.repo, file.path, revision=self._listing.commit, endpoint=endpoint())
        headers = build_hf_headers(library_name="gencli", library_version=__version__)
        headers["Accept-Encoding"] = "identity"
        if part.done:
            headers["Range"] = f"bytes={part.done}-"
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        # The client drops the token if a redirect leaves the hub's address.
        with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
            if response.status_code == 416:  # the requested range is empty
                part.restart()
                raise _Truncated
            hf_raise_for_status(response)
            content_range = _RANGE.match(response.headers.get("Content-Range", ""))
            begin = int(content_range[1]) if content_range and response.status_code == 206 else 0
            if begin != part.done:
                part.restart()
                if begin:
                    raise _Truncated
            for chunk in response.iter_bytes():
                if self._stop.is_set():
                    raise Stopped
                if part.done + len(chunk) > file.size:
                    raise ModelError(f"{file.path} of {name} is longer than the hub states.")
                part.add(chunk)
        if part.done < file.size:
            raise _Truncated


T = TypeVar("T")
FAILURES = (HTTPError, OfflineModeIsEnabled)
TRIES = 4
_DELAY, _MAX_DELAY = 0.5, 60.0  # seconds: after the first failure; limit if the hub asks for more
_TRANSIENT = (408, 429, 500, 502, 503, 504)


def retrying(call: Callable[[], T]) -> T:
    """Return the result of a request, retried after transient failures."""
    for attempt in range(TRIES - 1):
        try:
            return call()
        except FAILURES as error:
            seconds = retry_delay(error, attempt)
            if seconds is None:
                raise
            time.sleep(seconds)
    return call()


def retry_delay(error: Exception, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt; None if a retry would not help."""
    if isinstance(error, OfflineModeIsEnabled):
        return None
    delay: float = _DELAY * 2**attempt
    if isinstance(error, HfHubHTTPError):
        if error.response.status_code not in _TRANSIENT:
            return None
        header = error.response.headers.get("Retry-After", "")
        delay = max(delay, float(header)) if header.isdecimal() else delay
    return delay if delay <= _MAX_DELAY else None


def explain(error: Exception, name: HubName) -> ModelError:
    """Return the failure as a ModelError with a hint. Texts of the server are not shown."""
    host = urlsplit(endpoint()).hostname or "the hub"
    if isinstance(error, OfflineModeIsEnabled):
        return ModelError(f"{name} is not on this machine, and the libraries are offline.")
    if not isinstance(error, HfHubHTTPError):
        reason = type(error).__name__.lstrip("_")
        return ModelError(f"The connection to {host} failed ({reason}).", hint=_again(name))
    status, page = error.response.status_code, f"{endpoint()}/{name.repo}"
    page = page if "@" not in endpoint() else name.repo  # an address may contain a password
    if isinstance(error, GatedRepoError):
        login = ", then log in with a token: hf auth login, or HF_TOKEN"
        return ModelError(
            f"{name.repo} is gated: its owners grant access to accounts on request.",
            hint=f"Request access at {page}{' with the account of your token' if get_token() else login}.",
        )
    if isinstance(error, RevisionNotFoundError):
        return ModelError(f"{name.repo} has no revision {name.revision}.", hint=f"{page} lists them.")
    if isinstance(error, EntryNotFoundError):
        return ModelError(f"A file that {host} lists for {name} is not there.", hint="Try again later.")
    if isinstance(error, DisabledRepoError):
        return ModelError(f"{name.repo} is disabled on {host}.")
    if isinstance(error, RepositoryNotFoundError) or status in (401, 404):
        cause = "the token is not valid" if status == 401 and get_token() else "it is private"
        return ModelError(
            f"There is no model {name.repo} on {host}, or {cause}.",
            hint="Check the name. A private model needs a token: hf auth login, or HF_TOKEN.",
        )
    if status == 403:
        return ModelError(f"{host} refuses access to {name.repo}.", hint=f"{page} may say why.")
    if status == 429:
        return ModelError(
            f"{host} has had too many requests from this address.",
            hint="Wait some minutes, then run the command again.",
        )
    return ModelError(f"{host} answered with error {status} for {name}.", hint=_again(name))


def _again(name: HubName) -> str:
    """Return the hint to run the command again, which continues if a part of the model has been fetched."""
    blobs = repository_folder(name) / "blobs"
    if blobs.is_dir() and any(blobs.iterdir()):
        return "The fetched part is kept: run the same command again to continue."
    return "Nothing was fetched. Check the network, then run the same command again."

"""The files of a model on the hub, and the selection that gencli needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from gencli.errors import ModelError
from gencli.hub.cache import endpoint
from gencli.hub.failures import FAILURES, explain, retrying
from gencli.hub.gguf import choose_gguf, gguf_models
from gencli.hub.names import COMMIT, INDEX, SIDE_FILES, WEIGHTS, HubName

__all__ = [
    "Listing",
    "RemoteFile",
    "gguf_names",
    "list_files",
    "refuse_unnamed_gguf",
    "side_files",
    "weight_names",
]

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
    from huggingface_hub import HfApi, constants

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


def side_files(listing: Listing, *, with_code: bool) -> Iterator[RemoteFile]:
    """Yield configuration, tokenizer and templates, and with `with_code` the model's own modules."""
    patterns = (*SIDE_FILES, _CODE) if with_code else SIDE_FILES
    for path, file in listing.files.items():
        if any(fnmatchcase(path, pattern) for pattern in patterns):
            yield file


def gguf_names(listing: Listing) -> tuple[str, ...]:
    """Return the GGUF file selected by the name, or all of its parts. Raises ModelError if it is not one."""
    name = listing.name
    found = choose_gguf(listing.files, name.gguf)
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise ModelError(f"{name} may be any of {', '.join(found)}.", hint=_by_name(name, found))
    others = gguf_models(listing.files)
    what = f"It has {', '.join(others)}." if others else "It has no GGUF files at its top."
    raise ModelError(f"{name.repo} has no GGUF file {name.gguf}. {what}", hint=_by_name(name, others))


def _by_name(name: HubName, files: Mapping[str, object]) -> str:
    """Return a hint how to name one of the files."""
    return f"Name one, as in {replace(name, gguf=next(iter(files)))}." if files else ""


def refuse_unnamed_gguf(listing: Listing) -> None:
    """Raise ModelError if the weights are GGUF files only and the name selects none."""
    models = gguf_models(listing.files)
    if models and not any(path.endswith(".safetensors") for path in listing.files):
        name = listing.name
        raise ModelError(f"{name} has GGUF files: {', '.join(models)}.", hint=_by_name(name, models))


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

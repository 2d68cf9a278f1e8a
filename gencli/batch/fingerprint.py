"""The fingerprint of a batch: all values that determine its texts, compared when a run is resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from gencli import __version__
from gencli.batch.survey import Survey
from gencli.config.job import Job
from gencli.config.named_models import named_models
from gencli.config.options.run import OPTIONS
from gencli.config.recipe import files_of
from gencli.config.settings import Settings
from gencli.models.files.checkpoint import identify_model
from gencli.models.files.gguf_header import is_gguf, read_gguf_head
from gencli.models.files.local_models import find_local
from gencli.models.files.model_files import OnBytes
from processors.policy import MATCH

__all__ = ["company", "differences", "fingerprint", "folder_digest"]

# Number and size of the samples read from a weight file; two trainings of a model differ in all of them.
_PLACES, _BYTES = 16, 65536
_MOST_SAID = 300  # characters of a value in a message
_FILE = "file of "  # before the key of an option whose value names a file
_DIGESTS = ("input", "model files", "plugins", _FILE)  # beginnings of the names whose values are not shown
# Options that do not change texts, or that the fingerprint records in another form.
_BESIDE = {
    "seed",
    "file",
    "threads",
    "debug",
    "model",
    "preset",
    "trust_remote_code",
    "offline",
    "download",
    "memory_check",
    "cuda_graphs",
    "watermark_key",
}
# Options that determine which texts and drafts share a forward pass.
_COMPANY = {"max_batch", "async_steps", "draft", "draft_tokens", "draft_min_p"}


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
    found = {
        "gencli": __version__,
        "model": name,
        "model files": folder_digest(folder) if folder else "",
        "number format": number_format,
        **dict(_weights(settings, job, on_bytes, is_drafted=_drafts_decide(settings, survey))),
        "plugins": [_plugin(text) for text in settings["plugin"]],
        "chain": job.assembly.chain.to_list(),
        "seed": job.seed,
        **options,
        **{f"{_FILE}`{k}`": file["sha256"] for k, file in files_of(settings).items() if k not in _BESIDE},
        **columns,
        "number of rows": survey.num_rows,
        "input": survey.digest,
    }
    return dict(json.loads(json.dumps(found)))  # with the types of a JSON header


def company(settings: Settings, survey: Survey) -> frozenset[str]:
    """Return the fingerprint names that change no text if the number format is batch-invariant."""
    keys = {"max_batch", "async_steps"} if _drafts_decide(settings, survey) else _COMPANY
    return frozenset(f"`{key}`" for key in keys)


def _weights(
    settings: Settings, job: Job, on_bytes: OnBytes | None, *, is_drafted: bool
) -> Iterator[tuple[str, str | None]]:
    """Yield revision and hash of the weights of each model that affects the texts."""
    for key, name in named_models(settings, job.registry).items():
        if key != "draft" or is_drafted:
            identity = identify_model(name, on_bytes)
            prefix = "" if key == "model" else f"`{key}` "
            yield f"{prefix}revision", identity.revision if identity else None
            yield f"{prefix}weights_sha256", identity.sha256 if identity else None


def _drafts_decide(settings: Settings, survey: Survey) -> bool:
    """Return whether texts depend on drafts; under the policy `match` they do not."""
    return settings["verify"] != MATCH.policy or "verify" in survey.options


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Return a sentence for each changed value, by name; digests and long values are not shown.

    Revisions are not compared: a revision with equal files and weights is the same model.
    """
    changed = {}
    for name in [*before, *(name for name in now if name not in before)]:
        old, new = before.get(name), now.get(name)
        if old != new and not name.endswith("revision"):
            said = f"{name} was {old!r} and is {new!r}"
            is_digest = name.startswith(_DIGESTS) or len(said) > _MOST_SAID
            changed[name] = f"{name} changed" if is_digest else said
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
        digest.update(f"{path.name}:{path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            for place in _places(path):
                file.seek(place)
                digest.update(file.read(_BYTES))
    return digest.hexdigest()


def _places(path: Path) -> Iterator[int]:
    size = path.stat().st_size
    if path.suffix not in (".safetensors", ".gguf") or size <= _PLACES * _BYTES:
        yield from range(0, size, _BYTES)
    else:
        yield from (part * (size - _BYTES) // (_PLACES - 1) for part in range(_PLACES))


def _plugin(text: str) -> str:
    """Return the plug-in as given, with a hash of its code if it is a file."""
    path = Path(text.rpartition(":")[0] or text) if not Path(text).is_file() else Path(text)
    return f"{text} {blake2b(path.read_bytes(), digest_size=8).hexdigest()}" if path.is_file() else text

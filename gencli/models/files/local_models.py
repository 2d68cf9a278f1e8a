"""Models on this machine: bundled, by alias, in a folder, or in the hub's cache, with the names of models
on the hub and removal from the cache. Light to import. The cache has the layout of huggingface_hub:
`models--ORG--NAME/` has `blobs/` (files by hash), `snapshots/COMMIT/` (links to blobs) and `refs/`
(files with the commit of a branch or tag).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from gencli.errors import ConfigError, ModelError, UsageError
from gencli.files import locked, other_kind, read_file, replaced
from gencli.models.files.gguf_header import PART, is_gguf
from gencli.models.files.model_files import read_object_if_any
from processors.errors import close_names, did_you_mean

BUNDLED = ("tiny", "tiny-draft", "fake")


def bundled_folder(name: str) -> Path:
    return Path(str(files("gencli") / "assets" / name))


def is_bundled(name: str) -> bool:
    """Return whether a name or folder is that of a bundled model, whose files are trusted like gencli."""
    return name in BUNDLED or Path(name) in [bundled_folder(bundled) for bundled in BUNDLED]


def full_name(name: str) -> str:
    """Return the target of an alias, or the name itself. A bundled name is never an alias."""
    return name if name in BUNDLED or "/" in name else read_aliases().get(name, name)


def find_local(name: str) -> Path | None:
    """Return the folder of a bundled model, an alias, a path, or a hub name in the cache; None if absent.

    A GGUF file is returned itself, also that of a repository in the cache: org/name:Q4_0, org/name/file.gguf.
    """
    name = full_name(name)
    if name in BUNDLED:
        return None if name == "fake" else bundled_folder(name)
    with suppress(RuntimeError):  # the home folder is unknown
        path = Path(name).expanduser()
        if path.is_dir() or (is_gguf(path) and path.is_file()):
            return path
    hub = read_hub_name(name)
    if hub is not None and hub.gguf:
        return find_gguf(hub)
    if is_gguf(name):
        repo, _, file = name.rpartition("/")
        hub = read_hub_name(repo)
        return None if hub is None else find_file(hub, file)
    return None if hub is None else find_snapshot(hub)


def absent(name: str) -> ModelError:
    """Return the error for a model that is not on this machine."""
    target = full_name(name)
    shown = name if target == name else f"{name} ({target})"
    with suppress(RuntimeError, ValueError):  # the home folder is unknown; a null character
        if kind := other_kind(Path(target).expanduser()):
            needed = "a GGUF file" if is_gguf(target) else "a folder or a GGUF file"
            return ModelError(f"{shown} is {kind}, but has to be {needed}.")
    if is_gguf(target) and ":" not in target:
        repo, _, file = target.rpartition("/")
        hub = read_hub_name(repo)
        fetch = f"gencli models pull {hub.repo}:{file} fetches it." if hub else ""
        return ModelError(f"There is no file {shown}.", hint=fetch)
    if target.startswith((".", "/", "~")) or target.count("/") > 1:
        return ModelError(f"There is no folder {shown}.")
    guess = did_you_mean([repr(close) for close in near_names(name)])
    pull = f"gencli models pull {target} fetches it from the hub."
    if read_hub_name(target) is None:
        pull = "Models of the hub are named as in org/name, org/name@revision or org/name:Q4_0."
    hint = guess if guess and "/" not in target else f"{pull} {guess}".strip()
    return ModelError(f"{shown} is neither a folder nor a model on this machine.", hint=hint)


def near_names(name: str) -> list[str]:
    """Return local models with a similar name. The match is looser than for options: there are few names."""
    return close_names(name, local_names(), more=1)


def local_names() -> list[str]:
    """Return all model names on this machine that are no paths."""
    aliases: dict[str, str] = {}
    with suppress(ConfigError):  # reported where an alias is needed
        aliases = read_aliases()
    return [*BUNDLED, *aliases, *(name for name, _ in hub_models())]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_BYTES = 2**20  # of the file


def alias_file() -> Path:
    from platformdirs import user_config_path

    return user_config_path("gencli") / "aliases.json"


def read_aliases() -> dict[str, str]:
    """Return the target of each alias. Raises ConfigError for a file that cannot be read or is malformed."""
    path = alias_file()
    if not os.path.lexists(path):
        return {}
    try:
        aliases: Any = json.loads(read_file(path, _MAX_BYTES))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError):
        aliases = None
    if not isinstance(aliases, dict) or not all(isinstance(target, str) for target in aliases.values()):
        raise ConfigError(
            f"{path} is not a JSON object of aliases.", hint='It should look like {"small": "org/name"}.'
        )
    return {name: target for name, target in aliases.items() if _NAME.fullmatch(name)}


def add_alias(name: str, target: str, *, taken: Collection[str]) -> str:
    """Add an alias for a hub name or a folder; return the target. Bundled and `taken` names are none.

    Raises UsageError for a name that is already in use, and for a target that is no model name.
    """
    aliases = read_aliases()
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be an alias.", hint="Letters, digits, dots, dashes, underscores.")
    if name in BUNDLED or name in taken:
        raise UsageError(f"{name} means something else already.", hint="Take another name.")
    if target in BUNDLED:
        raise UsageError(f"{target} comes with gencli and needs no other name.")
    if target in aliases:
        raise UsageError(f"{target} is itself an alias.", hint=f"Give what it stands for: {aliases[target]}")
    if other := next((alias for alias, old in aliases.items() if old == name), None):
        raise UsageError(f"The alias {other} stands for {name}.", hint="Take another name.")
    path = Path(os.path.expanduser(target))
    if path.is_dir() or (is_gguf(path) and path.is_file()):
        # Blobs of the hub have no suffix.
        target = os.path.abspath(path) if is_gguf(path) else str(path.resolve())
    elif read_hub_name(target) is None:
        raise UsageError(f"{target!r} is neither a folder nor a GGUF file nor the name of a model.")
    _write({**aliases, name: target})
    return target


def remove_alias(name: str) -> str:
    """Remove an alias; return its target. Raises UsageError for an unknown alias."""
    aliases = read_aliases()
    if name not in aliases:
        raise UsageError(f"There is no alias {name!r}.", hint="gencli models alias lists them.")
    target = aliases.pop(name)
    _write(aliases)
    return target


def _write(aliases: Mapping[str, str]) -> None:
    path = alias_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as file:
            file.write(json.dumps(dict(sorted(aliases.items())), indent=2).encode() + b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


_FOLDER = re.compile(r"[0-9A-Za-z]{1,64}")  # name of a snapshot's folder
_TRUE = ("1", "ON", "YES", "TRUE")
UNFINISHED = ".incomplete"  # suffix of an incomplete blob
_PREFIX = "models--"


@dataclass(frozen=True, slots=True)
class Cached:
    """A snapshot in the cache, or a GGUF file in one, or an unfinished download (`folder` is None).

    `place` is the folder of the model's repository. `missing` are needed files that are absent;
    `unfinished` are the bytes of incomplete files.
    """

    name: str
    place: Path
    folder: Path | None
    missing: tuple[str, ...]
    unfinished: int

    @property
    def is_partial(self) -> bool:
        """Whether the model cannot be loaded yet."""
        return self.folder is None or bool(self.missing)


def hub_cache() -> Path:
    """Return the folder of the hub's cache, as huggingface_hub determines it."""
    if folder := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(folder).expanduser()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    home = Path(os.environ.get("HF_HOME") or caches / "huggingface").expanduser()
    return home / "hub"


def endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def is_offline() -> str | None:
    """Return the environment variable that keeps the libraries offline; None if none does."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if value := os.environ.get(name):
            return f"{name}={value}" if value.upper() in _TRUE else None
    return None


def repository_folder(name: HubName) -> Path:
    return hub_cache() / (_PREFIX + name.repo.replace("/", "--"))


def repository_lock(name: HubName) -> AbstractContextManager[None]:
    """Hold the lock of a repository. Raises UsageError if another process fetches or removes it."""
    lock = hub_cache() / ".locks" / repository_folder(name).name / "gencli"
    lock.parent.mkdir(parents=True, exist_ok=True)
    return locked(lock, work=f"{name} is being fetched", hint="Wait until it is complete.")


def hub_name(folder: Path) -> str | None:
    """Return the name of the model whose snapshot is in a folder; None for a folder outside a hub cache."""
    repository = folder.parent.parent
    is_snapshot = folder.parent.name == "snapshots" and repository.name.startswith(_PREFIX)
    return _repo(repository) if is_snapshot else None


def find_snapshot(name: HubName) -> Path | None:
    """Return the folder of a model's revision, complete or not; None if it has no configuration."""
    folder = _snapshot(name)
    return folder if folder is not None and (folder / "config.json").is_file() else None


def find_file(name: HubName, file: str) -> Path | None:
    """Return a top-level file of a repository's revision; None if it is not in the cache."""
    folder = _snapshot(name)
    return folder / file if folder is not None and "/" not in file and (folder / file).is_file() else None


def find_gguf(name: HubName) -> Path | None:
    """Return the first file of the GGUF model selected by a name; None if it is not in the cache.

    Raises ModelError if the cache has several.
    """
    folder = _snapshot(name)
    files = [path.name for path in folder.glob("*") if path.exists()] if folder is not None else []
    models = choose_gguf(files, name.gguf)
    if len(models) > 1:
        raise ModelError(f"{name} may be any of {', '.join(models)}.", hint="Give the name of one file.")
    return folder / next(iter(models)) if folder is not None and models else None


def _snapshot(name: HubName) -> Path | None:
    repository = repository_folder(name)
    commit = name.revision if COMMIT.fullmatch(name.revision) else _ref(repository / "refs" / name.revision)
    return repository / "snapshots" / commit if commit else None


def hub_models() -> Iterator[tuple[str, Path]]:
    """Yield name and folder of each snapshot in the cache with a configuration, and GGUF files, by name."""
    for model in cached_models():
        path = model.folder
        if path is not None and (path.is_file() or (path / "config.json").is_file()):
            yield model.name, path


def cached_models() -> Iterator[Cached]:
    """Yield all snapshots in the cache, and downloads without one, sorted by name."""
    cache = hub_cache()
    for repository in sorted(cache.glob(f"{_PREFIX}*")) if cache.is_dir() else ():
        if repository.is_dir():
            yield from _snapshots(repository)


def _snapshots(repository: Path) -> Iterator[Cached]:
    repo, refs = _repo(repository), _refs(repository)
    unfinished = sum(path.stat().st_size for path in repository.glob(f"blobs/*{UNFINISHED}"))
    folders = [folder for folder in sorted(repository.glob("snapshots/*")) if folder.is_dir()]
    for folder in folders:
        names = refs.get(folder.name, [folder.name])
        for revision in names:
            files = gguf_models(path.name for path in folder.iterdir() if path.exists())
            for first in files:
                name = str(HubName(repo, revision, first))
                yield Cached(name, repository, folder / first, (), unfinished)
            if not files or (folder / "config.json").is_file():
                name = str(HubName(repo, revision))
                yield Cached(name, repository, folder, missing_files(folder), unfinished)
    if not folders:
        yield Cached(repo, repository, None, (), unfinished)


def missing_files(folder: Path, *, with_code: bool = False) -> tuple[str, ...]:
    """Return the required files that a model folder lacks, as far as its own files list them.

    `with_code` includes the model's own Python modules.
    """
    if not (folder / "config.json").is_file():
        return ("config.json",)
    if (folder / WEIGHTS).is_file():
        needed = []
    elif (folder / INDEX).is_file():
        shards = read_object_if_any(folder / INDEX).get("weight_map")
        needed = sorted({str(name) for name in shards.values()}) if isinstance(shards, dict) else [INDEX]
    else:
        is_pickle = any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth"))
        needed = [] if is_pickle else [WEIGHTS]  # pickles are complete, although they cannot be loaded
    if with_code:
        classes = read_object_if_any(folder / "config.json").get("auto_map")
        texts = classes.values() if isinstance(classes, dict) else ()
        modules = (text for text in texts if isinstance(text, str) and "--" not in text)
        needed += sorted({f"{text.partition('.')[0]}.py" for text in modules})
    broken = [path.name for path in folder.iterdir() if path.is_symlink() and not path.exists()]
    return tuple(dict.fromkeys([*(name for name in needed if not (folder / name).is_file()), *broken]))


def disk_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; links are not followed."""
    stats = (path.lstat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(stat.st_size for stat in stats)


def _repo(repository: Path) -> str:
    return repository.name.removeprefix(_PREFIX).replace("--", "/")


def _refs(repository: Path) -> dict[str, list[str]]:
    """Return the branches and tags of each commit, `main` first."""
    refs: dict[str, list[str]] = {}
    for path in sorted(repository.glob("refs/**/*")):
        if commit := _ref(path):
            refs.setdefault(commit, []).append(path.relative_to(repository / "refs").as_posix())
    return {commit: sorted(names, key=lambda name: name != MAIN) for commit, names in refs.items()}


def _ref(path: Path) -> str:
    """Return the commit of a branch or tag; "" if the file does not name one."""
    try:
        with path.open(encoding="ascii") as file:
            text = file.read(100).strip()
    except (OSError, ValueError):
        return ""
    return text if _FOLDER.fullmatch(text) else ""


@dataclass(frozen=True, slots=True)
class Removal:
    """A planned removal: the bytes that it frees, and the function that executes it."""

    freed: int
    execute: Callable[[], None]


def plan_removal(name: HubName, *, is_whole: bool) -> Removal:
    """Plan the removal of a whole model, or of one revision. Raises ModelError if it is not in the cache."""
    from huggingface_hub import scan_cache_dir

    repository, folder = repository_folder(name), find_snapshot(name)
    if repository.is_symlink() or not repository.is_dir() or not (is_whole or folder):
        raise ModelError(f"{name} is not in {hub_cache()}.", hint="gencli models list shows the models.")
    scan = scan_cache_dir(hub_cache())
    if is_whole:
        mine = (repo for repo in scan.repos if repo.repo_path.resolve() == repository.resolve())
        commits = [revision.commit_hash for repo in mine for revision in repo.revisions]
    else:
        commits = [folder.name] if folder else []
    # The library knows which files revisions share, but not unfinished downloads.
    strategy = scan.delete_revisions(*commits)

    def execute() -> None:
        with repository_lock(name):
            strategy.execute()
            if is_whole:
                shutil.rmtree(repository, ignore_errors=True)
        if is_whole and repository.exists():
            raise ModelError(f"{repository} cannot be removed.", hint="Check its owner and permissions.")

    freed: int = strategy.expected_freed_size
    return Removal(max(freed, disk_bytes(repository)) if is_whole else freed, execute)


_BESIDE = ("mmproj", "imatrix")  # prefixes of GGUF files that are not language models


def gguf_models(files: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return GGUF files by the name of a model's first file: this file, or all of its parts."""
    parts_by_first: dict[str, list[str]] = {}
    for file in sorted(files):
        if not is_gguf(file) or file.lower().startswith(_BESIDE):
            continue
        part = PART.fullmatch(file)
        first = f"{part['stem']}-00001-of-{part['count']}.gguf" if part else file
        parts_by_first.setdefault(first, []).append(file)
    return {
        first: tuple(parts)
        for first, parts in parts_by_first.items()
        if (part := PART.fullmatch(first)) is None or len(parts) == int(part["count"])
    }


def choose_gguf(files: Iterable[str], wanted: str) -> dict[str, tuple[str, ...]]:
    """Return the models, by their first file, that are quantized as `wanted` or have that file name.

    The quantization is a part of the name between dots or dashes; case is ignored.
    """
    models = gguf_models(files)
    if is_gguf(wanted):
        return {first: parts for first, parts in models.items() if wanted in parts}
    pattern = re.compile(rf"(?:^|[-.]){re.escape(wanted)}(?:[-.]|$)", re.IGNORECASE)
    return {first: parts for first, parts in models.items() if pattern.search(PurePosixPath(first).stem)}


MAIN = "main"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
# Patterns of configuration, tokenizer and templates.
SIDE_FILES = (
    *("*config.json", "tokenizer*.json", "vocab*.json", "added_tokens.json", "special_tokens_map.json"),
    *("chat_template*.json", "tekken.json", "*.jinja", "*.model", "*.tiktoken", "*.spm", "*.bpe"),
    *("vocab.txt", "merges.txt"),
)
COMMIT = re.compile(r"[0-9a-f]{40}")
_PART = r"[A-Za-z0-9_](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_REPO = re.compile(rf"(?:{_PART}/)?{_PART}", re.ASCII)
_GGUF = re.compile(r"[A-Za-z0-9_][\w.+-]{0,199}", re.ASCII)  # a quantization, or a file
_REVISION = re.compile(r"[A-Za-z0-9_](?:[\w./+-]{0,198}[\w+])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository and a revision: branch, tag or commit.

    `gguf`: quantization, such as Q4_0, or name of a GGUF file.
    """

    repo: str
    revision: str = MAIN
    gguf: str = ""

    def __str__(self) -> str:
        name = self.repo if self.revision == MAIN else f"{self.repo}@{self.revision}"
        return f"{name}:{self.gguf}" if self.gguf else name


def read_hub_name(text: str) -> HubName | None:
    """Parse a name: org/name, org/name@revision, org/name:Q4_0. None for a name that the hub forbids."""
    text, colon, gguf = text.partition(":")
    if colon and not _GGUF.fullmatch(gguf):
        return None
    repo, at, revision = text.partition("@")
    is_repo = (
        _REPO.fullmatch(repo)
        and "--" not in repo
        and ".." not in repo
        and not repo.endswith((".git", ".gguf"))
    )
    if not is_repo:
        return None
    if not at:
        return HubName(repo, gguf=gguf)
    is_plain = all(part and part not in (".", "..") for part in revision.split("/"))
    return HubName(repo, revision, gguf) if _REVISION.fullmatch(revision) and is_plain else None

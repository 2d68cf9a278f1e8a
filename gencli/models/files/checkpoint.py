"""Checks of a model folder before anything is loaded, from its small files and the headers of its weight
files; and the identity of a model: its name, its revision on the hub, and a SHA-256 of its weights. For
one weight file the SHA-256 is that of the file; for several it is that of the output of `sha256sum
*.safetensors`, or of all parts of a GGUF file.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from gencli.errors import ModelError
from gencli.files import open_regular, read_file, replaced
from gencli.helpers import shortened
from gencli.models.decoder.families import DecoderSpec
from gencli.models.files.gguf_header import is_gguf, read_gguf_head
from gencli.models.files.local_models import INDEX, WEIGHTS, absent, find_local, hub_name, is_bundled
from gencli.models.files.model_card import (
    CONTEXT_KEYS,
    Card,
    Weights,
    card_of,
    read_config,
    text_part,
    weights_of,
)
from gencli.models.files.model_files import (
    OnBytes,
    StoredTensor,
    is_own,
    read_object,
    read_table,
    stored_bits,
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model folder with a readable config and readable weight files, or a GGUF file (`folder`).

    All that is known without reading weights, read once: `table` has the tensors of safetensors files by
    name, `weights` their sums; `spec` is the decoder that runs the model, None for transformers.
    """

    folder: Path
    config: dict[str, Any]
    files: tuple[Path, ...]
    table: Mapping[str, StoredTensor]
    weights: Weights
    spec: DecoderSpec | None = None

    @property
    def stored(self) -> str:
        """The most common number format of the weights, as the files name it: F32, BF16, F16, Q4_K..."""
        return self.weights.stored or "F32"

    @property
    def card(self) -> Card:
        """The metadata of the model. Raises ModelError for a damaged configuration."""
        return card_of(self.folder, self.config, self.weights, self.spec)

    @property
    def is_quantized(self) -> bool:
        return "quantization_config" in self.config

    @property
    def bits(self) -> int | None:
        """The bits of weights that gencli has quantized; None for other weights."""
        return stored_bits(self.config)


def open_checkpoint(name_or_path: str, *, trust_remote_code: bool) -> Checkpoint:
    """Find the folder and check its config and weights. Raises ModelError with the first fault."""
    return check_checkpoint(*read_folder(name_or_path), trust_remote_code=trust_remote_code)


def check_checkpoint(folder: Path, config: dict[str, Any], *, trust_remote_code: bool) -> Checkpoint:
    """Return the checkpoint of a folder after all checks for transformers. Raises ModelError."""
    if is_gguf(folder):
        raise ModelError(
            f"{folder} is a GGUF file, which gencli runs with its own decoder, not transformers."
        )
    check_architecture(folder, config, trust_remote_code=trust_remote_code)
    checkpoint = read_checkpoint(folder, config)
    from transformers import AutoConfig

    try:
        hf_config = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except Exception as error:  # transformers raises exceptions of any type here
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise ModelError(f"{folder / 'config.json'} describes no model: {reason}") from error
    if not (checkpoint.is_quantized or trust_remote_code or is_bundled(str(folder))):
        check_shapes(folder, checkpoint.table, hf_config)
    return checkpoint


def read_folder(name_or_path: str) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a model, or its GGUF file, and its configuration, without downloading.

    Raises ModelError if it is absent, and for damaged small files.
    """
    folder = find_local(name_or_path)
    if folder is None and Path(name_or_path).is_file():
        raise ModelError(
            f"{name_or_path} is a file",
            hint="Give the folder that holds config.json and *.safetensors, or a GGUF file",
        )
    if folder is None:
        raise absent(name_or_path)
    config = read_config(folder)
    if not is_gguf(folder):
        check_files(folder)
    return folder, config


def read_checkpoint(folder: Path, config: dict[str, Any], spec: DecoderSpec | None = None) -> Checkpoint:
    """Return the checkpoint of a folder after checking its config and weights, without transformers.

    `spec` is the decoder of the configuration that is to run it.
    """
    if is_gguf(folder):
        parts = read_gguf_head(folder).files
        return Checkpoint(folder, config, parts, {}, weights_of(parts, {}), spec)
    check_config(folder, config)
    files = tuple(weight_files(folder))
    table = read_table(files)
    return Checkpoint(folder, config, files, table, weights_of(files, table), spec)


def check_architecture(folder: Path, config: dict[str, Any], *, trust_remote_code: bool) -> None:
    """Raise ModelError if the installed transformers has no causal language model for the configuration."""
    from transformers import __version__
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind = config.get("model_type")
    is_known = kind in CONFIG_MAPPING
    needs_encoder = is_known and config.get("is_encoder_decoder", CONFIG_MAPPING[kind].is_encoder_decoder)
    if is_known and kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not needs_encoder:
        return
    if "AutoModelForCausalLM" in config.get("auto_map", {}):
        if trust_remote_code:
            return
        raise ModelError(
            f"{folder} brings its own Python code, which is not run unless you say so",
            hint="Read it first; `trust_remote_code` runs it",
        )
    if is_known:
        raise ModelError(f"A model of type {kind} does not continue text token by token: {folder}")
    raise ModelError(
        f"transformers {__version__} knows no model type {kind!r}: {folder}",
        hint="A newer version of transformers may: pip install -U transformers",
    )


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of the checkpoint. Raises ModelError if some are missing."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        shards = read_object(folder / INDEX).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
            raise ModelError(f"{folder / INDEX} has no weight_map of files", hint="Download it again")
        if outside := [
            name for name in shards.values() if Path(name).is_absolute() or ".." in Path(name).parts
        ]:
            raise ModelError(f"{folder / INDEX} names a file that is not in its folder: {outside[0]}")
        files = [folder / name for name in sorted(set(shards.values()))]
        if missing := [file.name for file in files if not file.is_file()]:
            raise ModelError(
                f"{folder} lacks {len(missing)} of {len(files)} weight files, such as {missing[0]}"
            )
        return files
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
        raise ModelError(
            f"{folder} has its weights as pickle files only; loading those can run code, so it is not done",
            hint="Convert them to safetensors once, or take a revision that has model.safetensors",
        )
    raise ModelError(f"{folder} has a config.json and no weights ({WEIGHTS})")


_SMALL = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json")
# The least values of keys; there are layers without attention.
_LEAST = dict.fromkeys(
    ("num_hidden_layers", "n_layer", "hidden_size", "n_embd", "vocab_size", *CONTEXT_KEYS), 1
)
_LEAST |= dict.fromkeys(("num_attention_heads", "n_head"), 0)
_MAX_COUNT = 2**31 - 1
_INDEX = re.compile(r"(?:^|\.)(\d+)\.")  # the first number in a tensor's name is its layer's
_MODULES = 64  # maximum number of modules of a model per tensor in its weight files
_HINT = "It is damaged, or not made for this; download it again."


def check_files(folder: Path) -> None:
    """Raise ModelError for paths that are neither file nor folder, and small files that are no JSON objects.

    A device or a pipe could be read without end.
    """
    for path in (*folder.iterdir(), *folder.glob("*/*.jinja")):
        if not path.is_dir() and path.exists():  # a broken link fails when it is read
            try:
                open_regular(path).close()
            except OSError as error:
                raise ModelError(f"{path} cannot be read: {error.strerror}.", hint=_HINT) from None
    for name in _SMALL:
        if (folder / name).exists():
            read_object(folder / name)


_MTP = re.compile(r"(model\.)?mtp(_layers)?\.")


def unused_notices(names: Sequence[str]) -> tuple[str, ...]:
    """Return a notice about tensors that a model does not use, unless a drafter may: layers for multi-token
    prediction, which have names of their own or are behind those of the model.
    """
    deep = tuple([name.removesuffix("eh_proj.weight") for name in names if name.endswith(".eh_proj.weight")])
    names = [name for name in names if not _MTP.match(name) and not name.startswith(deep)]
    return (f"{len(names)} tensors of the checkpoint are not used, such as {names[0]}",) if names else ()


def check_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise ModelError for values in config.json that no model can have."""
    path = folder / "config.json"
    if not isinstance(config.get("text_config"), Mapping | None):
        shown = _shown(config["text_config"])
        raise ModelError(f"{path}: text_config is {shown}, but has to be an object.", hint=_HINT)
    import torch

    for part in (config, text_part(config)):
        for key, least in _LEAST.items():
            value = part.get(key)
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (is_number and least <= value <= _MAX_COUNT):
                bounds = f"a whole number from {least} to {_MAX_COUNT}"
                raise ModelError(f"{path}: {key} is {_shown(value)}, but has to be {bounds}.", hint=_HINT)
        _check_end(path, part)
    generation = folder / "generation_config.json"
    if generation.exists():
        _check_end(generation, read_object(generation))
    for key in ("dtype", "torch_dtype"):
        name = config.get(key)
        if not isinstance(name, str) or name == "auto":
            continue
        if not isinstance(getattr(torch, name.removeprefix("torch."), None), torch.dtype):
            raise ModelError(f"{path}: {key} is {_shown(name)}, not a format of PyTorch.", hint=_HINT)
    _check_quantization(path, config)


def _check_end(path: Path, config: Mapping[str, Any]) -> None:
    """Raise ModelError for end-of-text ids that are no numbers. Unused ids are allowed (see end_ids)."""
    ends = config.get("eos_token_id")
    for token in ends if isinstance(ends, list) else [ends]:
        if token is not None and (not isinstance(token, int) or isinstance(token, bool)):
            raise ModelError(
                f"{path}: eos_token_id has {_shown(token)}, but has to name token ids, which are numbers.",
                hint=_HINT,
            )


def _check_quantization(path: Path, config: Mapping[str, Any]) -> None:
    quantization = config.get("quantization_config")
    if quantization is None:
        return
    if is_own(config):
        stored_bits(config)  # refuses what this version does not read
        return
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as KNOWN

    if isinstance(quantization, Mapping):
        if quantization.get("load_in_4bit") or quantization.get("load_in_8bit"):
            return  # files older than quant_method
        quantization = quantization.get("quant_method")
    if quantization not in KNOWN:
        raise ModelError(
            f"{path}: quantization_config has the method {_shown(quantization)}, unknown to transformers.",
            hint=f"It knows {', '.join(sorted(KNOWN))}.",
        )


def check_shapes(folder: Path, table: Mapping[str, StoredTensor], hf_config: Any) -> None:
    """Raise ModelError if the weights do not have the shapes of the configuration.

    `hf_config` is the configuration as transformers reads it. Tensor names of only one side are not checked,
    because transformers renames some.
    """
    shapes = _shapes(folder, hf_config, limit=1000 + _MODULES * len(table))
    layers, held_layers = _num_layers(shapes), _num_layers(table)
    if held_layers and layers > held_layers:
        raise _misfit(folder, f"{layers} layers", f"{held_layers}")
    for name, shape in shapes.items():
        held = table[name].shape if name in table else shape
        if held != shape and sorted(held) != sorted(shape):  # some layers are transposed when they are loaded
            raise _misfit(folder, f"{name} of the shape {list(shape)}", str(list(held)))


def _num_layers(names: Iterable[str]) -> int:
    """Return the number of layers by the names of tensors. Models that loop over layers configure others."""
    return max((int(match[1]) + 1 for match in map(_INDEX.search, names) if match), default=0)


def _misfit(folder: Path, asked: str, held: str) -> ModelError:
    return ModelError(f"{folder}: config.json asks for {asked}, the weights hold {held}.", hint=_HINT)


class _TooLarge(Exception):
    """The model has more modules than its weight files can fill."""


def _shapes(folder: Path, hf_config: Any, *, limit: int) -> dict[str, tuple[int, ...]]:
    """Return tensor shapes of a model built on the meta device; {} if it cannot be built.

    Raises ModelError for more than `limit` modules.
    """
    import torch
    from torch.nn.modules.module import register_module_module_registration_hook
    from transformers import AutoModelForCausalLM

    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1
        if count > limit:
            raise _TooLarge

    handle = register_module_module_registration_hook(note)
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(hf_config)
    except _TooLarge:
        raise _misfit(folder, f"more than {limit} modules", "far fewer tensors") from None
    except Exception:  # loading reports the error
        return {}
    finally:
        handle.remove()
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def _shown(value: Any) -> str:
    return shortened(repr(value), 60)


_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK = 2**22  # bytes
_MAX_ENTRIES, _MAX_BYTES = 1000, 2**22  # hashes in the user's cache, and the size of its file
_FRESH = 2 * 10**9  # ns; a younger file may change again with the same time stamps


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """A verifiable model identity. `revision` is the hub's commit; None for other folders."""

    name: str
    revision: str | None
    sha256: str


_OF_HEADS = ("*.safetensors", "*.bin", "*.pt")  # files of draft heads, which have any name


def identify_model(name: str, on_bytes: OnBytes | None = None) -> ModelIdentity | None:
    """Return the identity of a model by name; None for `fake` and for models not on this machine."""
    folder = None if name == "fake" else find_local(name)
    return None if folder is None else identify(folder, on_bytes)


def identify(folder: Path, on_bytes: OnBytes | None = None) -> ModelIdentity:
    """Return the identity of a model folder or a GGUF file. Raises ModelError if weights are missing.

    `on_bytes` is called with the hashed bytes and the total bytes to hash.
    """
    if is_gguf(folder):
        files = list(read_gguf_head(folder).files)
        folder = files[0]
    else:
        is_model = (folder / WEIGHTS).is_file() or (folder / INDEX).is_file()
        heads = [] if is_model else [path for kind in _OF_HEADS for path in folder.glob(kind)]
        files = sorted(heads or weight_files(folder), key=lambda path: path.name)
    hashes = dict(_hashes(files, on_bytes))
    if len(hashes) == 1:
        (digest,) = hashes.values()
    else:
        lines = "".join(f"{hashes[path]}  {path.name}\n" for path in files)
        digest = sha256(lines.encode()).hexdigest()
    home = folder.parent if is_gguf(folder) else folder
    name = hub_name(home)
    return ModelIdentity(name or folder.resolve().name, home.name if name else None, digest)


def _hashes(files: list[Path], on_bytes: OnBytes | None) -> Iterator[tuple[Path, str]]:
    cache = _HashCache.read()
    unknown = []
    for path in files:
        if stored := _stored_name(path) or cache.find(path):
            yield path, stored
        else:
            unknown.append(path)
    total, done = sum(path.stat().st_size for path in unknown), 0
    if unknown and on_bytes is not None:
        on_bytes(0, total)
    for path in unknown:
        before, digest = path.stat(), sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                done += len(chunk)
                if on_bytes is not None:
                    on_bytes(done, total)
        cache.add(path, before, digest.hexdigest())
        yield path, digest.hexdigest()
    if unknown:
        cache.write()


def _stored_name(path: Path) -> str | None:
    """Return the SHA-256 under which the hub's cache stores a snapshot file; None for other files."""
    if not path.is_symlink() or hub_name(path.parent) is None:
        return None
    # One step only: a blob may itself be a link to a store that names files by another hash.
    blob = Path(os.path.normpath(path.parent / os.readlink(path)))
    is_blob = blob.parent == path.parent.parent.parent / "blobs" and _SHA256.fullmatch(blob.name)
    return blob.name if is_blob else None


class _HashCache:
    """Cached hashes by path, valid while size, times and inode of the file are unchanged."""

    def __init__(self, path: Path, entries: dict[str, Any]) -> None:
        self._path, self._entries = path, entries

    @classmethod
    def read(cls) -> _HashCache:
        """Read the user's cache; empty if it cannot be read."""
        from platformdirs import user_cache_path

        path, entries = user_cache_path("gencli") / "weights.json", None
        with suppress(OSError, ValueError):
            entries = json.loads(read_file(path, _MAX_BYTES))
        return cls(path, entries if isinstance(entries, dict) else {})

    def find(self, path: Path) -> str | None:
        """Return the hash of the file; None if it is unknown or the file has changed."""
        match self._entries.get(str(path.resolve())):
            case [list(stamp), str(digest)] if stamp == _stamp(path.stat()) and _SHA256.fullmatch(digest):
                return digest
        return None

    def add(self, path: Path, before: os.stat_result, digest: str) -> None:
        """Store a hash, unless the file may have changed during reading or may change unnoticed."""
        after = path.stat()
        is_fresh = time.time_ns() - max(after.st_mtime_ns, after.st_ctime_ns) < _FRESH
        if _stamp(before) == _stamp(after) and not is_fresh:
            self._entries.pop(str(path.resolve()), None)
            self._entries[str(path.resolve())] = [_stamp(after), digest]

    def write(self) -> None:
        """Write the newest entries. A failed write is ignored: the files are hashed again."""
        entries = dict(list(self._entries.items())[-_MAX_ENTRIES:])
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replaced(self._path, pipes=False) as file:
                file.write(json.dumps(entries).encode())


def _stamp(stat: os.stat_result) -> list[int]:
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]

"""Checks of a model folder before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gencli.errors import ModelError
from gencli.hub.names import INDEX, WEIGHTS
from gencli.models.decoder.spec import DecoderSpec
from gencli.models.files.card import Card, Weights, card_of, weights_of
from gencli.models.files.config import read_config
from gencli.models.files.fit import check_config, check_files, check_shapes
from gencli.models.files.json_files import read_object
from gencli.models.files.locate import absent, find_local, is_bundled
from gencli.models.files.quantization import stored_bits
from gencli.models.files.table import StoredTensor, read_table
from gencli.models.gguf.head import is_gguf, read_gguf_head

__all__ = [
    "Checkpoint",
    "check_architecture",
    "check_checkpoint",
    "open_checkpoint",
    "read_checkpoint",
    "read_folder",
    "weight_files",
]


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
        """Whether the config names a quantization method."""
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
    found = read_checkpoint(folder, config)
    made = _made_config(folder, trust_remote_code=trust_remote_code)
    if not (found.is_quantized or trust_remote_code or is_bundled(str(folder))):
        check_shapes(folder, found.table, made)
    return found


def read_folder(name_or_path: str) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a model, or its GGUF file, and its configuration.

    Raises ModelError for damaged small files.
    """
    folder = _find_folder(name_or_path)
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


def _made_config(folder: Path, *, trust_remote_code: bool) -> Any:
    """Return the configuration as transformers reads it. Raises ModelError if it cannot."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    except Exception as error:  # transformers raises exceptions of any type here
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise ModelError(f"{folder / 'config.json'} describes no model: {reason}") from error


def _find_folder(name_or_path: str) -> Path:
    """Return the folder of a model by name or path, without downloading. Raises ModelError if absent."""
    folder = find_local(name_or_path)
    if folder is not None:
        return folder
    if Path(name_or_path).is_file():
        raise ModelError(
            f"{name_or_path} is a file",
            hint="Give the folder that holds config.json and *.safetensors, or a GGUF file",
        )
    raise absent(name_or_path)


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
            hint="`trust_remote_code` runs it; read it first",
        )
    if is_known:
        raise ModelError(f"A model of type {kind} does not continue text token by token: {folder}")
    raise ModelError(
        f"transformers {__version__} knows no model type {kind!r}: {folder}",
        hint="a newer transformers may: pip install -U transformers",
    )


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of the checkpoint. Raises ModelError if some are missing."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        shards = read_object(folder / INDEX).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
            raise ModelError(f"{folder / INDEX} has no weight_map of files", hint="Download it again")
        files = [folder / name for name in sorted(set(shards.values()))]
        if absent := [file.name for file in files if not file.is_file()]:
            raise ModelError(
                f"{folder} lacks {len(absent)} of {len(files)} weight files, such as {absent[0]}"
            )
        return files
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
        raise ModelError(
            f"{folder} has its weights as pickle files only; loading those can run code, so it is not done",
            hint="convert them to safetensors once, or take a revision that has model.safetensors",
        )
    raise ModelError(f"{folder} has a config.json and no weights ({WEIGHTS})")

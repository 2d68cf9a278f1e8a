"""Check that a model folder can be loaded, from its small files and the headers of its weight files.

transformers would report most of these faults later, after reading the weights, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gencli.errors import ModelError
from gencli.files import open_regular
from gencli.models.files.card import CONTEXT_KEYS, text_part
from gencli.models.files.json_files import read_object
from gencli.models.files.quantization import is_own, stored_bits
from gencli.models.files.table import StoredTensor

__all__ = ["check_config", "check_files", "check_shapes"]

_SMALL = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json")
_LAYERS = ("num_hidden_layers", "n_layer")
_AT_LEAST_1 = (*_LAYERS, "hidden_size", "n_embd", "vocab_size", *CONTEXT_KEYS)
_AT_LEAST_0 = ("num_attention_heads", "n_head")  # there are layers without attention
_MOST = 2**31 - 1
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


def check_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise ModelError for values in config.json that no model can have."""
    path = folder / "config.json"
    if not isinstance(config.get("text_config"), Mapping | None):
        shown = _shown(config["text_config"])
        raise ModelError(f"{path}: text_config is {shown}, but has to be an object.", hint=_HINT)
    text = text_part(config)
    for part in (config, text):
        for least, keys in ((1, _AT_LEAST_1), (0, _AT_LEAST_0)):
            for key in keys:
                _check_number(path, key, part.get(key), least)
        _check_end(path, part)
    made = folder / "generation_config.json"
    if made.exists():
        _check_end(made, read_object(made))
    _check_dtype(path, config)
    _check_quantization(path, config)


def _check_number(path: Path, key: str, value: Any, least: int) -> None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (is_number and least <= value <= _MOST):
        raise ModelError(
            f"{path}: {key} is {_shown(value)}, but has to be a whole number from {least} to {_MOST}.",
            hint=_HINT,
        )


def _check_end(path: Path, config: Mapping[str, Any]) -> None:
    """Raise ModelError for end-of-text ids that are no numbers. Unused ids are allowed (see end_ids)."""
    found = config.get("eos_token_id")
    for token in found if isinstance(found, list) else [found]:
        if token is not None and (not isinstance(token, int) or isinstance(token, bool)):
            raise ModelError(
                f"{path}: eos_token_id has {_shown(token)}, but has to name token ids, which are numbers.",
                hint=_HINT,
            )


def _check_dtype(path: Path, config: Mapping[str, Any]) -> None:
    import torch

    for key in ("dtype", "torch_dtype"):
        name = config.get(key)
        if not isinstance(name, str) or name == "auto":
            continue
        if not isinstance(getattr(torch, name.removeprefix("torch."), None), torch.dtype):
            raise ModelError(f"{path}: {key} is {_shown(name)}, no format of PyTorch's.", hint=_HINT)


def _check_quantization(path: Path, config: Mapping[str, Any]) -> None:
    if config.get("quantization_config") is None:
        return
    if is_own(config):
        stored_bits(config)  # refuses what this version does not read
        return
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as KNOWN

    found = config["quantization_config"]
    if isinstance(found, Mapping) and (found.get("load_in_4bit") or found.get("load_in_8bit")):
        return  # files older than quant_method
    method = found.get("quant_method") if isinstance(found, Mapping) else found
    if method not in KNOWN:
        raise ModelError(
            f"{path}: quantization_config has the method {_shown(method)}, unknown to transformers.",
            hint=f"It knows {', '.join(sorted(KNOWN))}.",
        )


def check_shapes(folder: Path, table: Mapping[str, StoredTensor], made: Any) -> None:
    """Raise ModelError if the weights do not have the shapes of the configuration.

    `made` is the configuration as transformers reads it. Tensor names of only one side are not checked,
    because transformers renames some.
    """
    shapes = _shapes(folder, made, most=1000 + _MODULES * len(table))
    layers, held_layers = _num_layers(shapes), _num_layers(table)
    if held_layers and layers > held_layers:
        raise _misfit(folder, f"{layers} layers", f"{held_layers}")
    for name, shape in shapes.items():
        held = table[name].shape if name in table else shape
        if held != shape and sorted(held) != sorted(shape):  # some layers are transposed when they are loaded
            raise _misfit(folder, f"{name} of the shape {list(shape)}", str(list(held)))


def _num_layers(names: Iterable[str]) -> int:
    """Return the number of layers by the names of tensors. Models that loop over layers configure others."""
    return max((int(found[1]) + 1 for found in map(_INDEX.search, names) if found), default=0)


def _misfit(folder: Path, asked: str, held: str) -> ModelError:
    return ModelError(f"{folder}: config.json asks for {asked}, the weights hold {held}.", hint=_HINT)


class _TooLarge(Exception):
    """The model has more modules than its weight files can fill."""


def _shapes(folder: Path, made: Any, *, most: int) -> dict[str, tuple[int, ...]]:
    """Return tensor shapes of a model built on the meta device; {} if it cannot be built.

    Raises ModelError for more than `most` modules.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"), _limited(most):
            model = AutoModelForCausalLM.from_config(made)
    except _TooLarge:
        raise _misfit(folder, f"more than {most} modules", "far fewer tensors") from None
    except Exception:  # loading reports the error
        return {}
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


@contextmanager
def _limited(most: int) -> Iterator[None]:
    """Raise _TooLarge inside the block when more than `most` modules are created."""
    from torch.nn.modules.module import register_module_module_registration_hook

    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1
        if count > most:
            raise _TooLarge

    handle = register_module_module_registration_hook(note)
    try:
        yield
    finally:
        handle.remove()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

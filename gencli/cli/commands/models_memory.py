"""The table of `gencli models show --memory`: the memory of a model on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gencli.cli.terminal.tables import table
from gencli.models.device import free_memory, kv_name
from gencli.models.files.gguf_header import kept_kinds
from gencli.models.files.model_card import Card, has_codes
from gencli.models.files.model_files import Format
from gencli.models.model_memory import need_of, process_memory
from gencli.units import size

__all__ = ["memory_json", "memory_text"]

_CPU = torch.device("cpu")
# Number formats of activations, of keys and values, and of quantized weights.
_FORMATS: tuple[tuple[torch.dtype, torch.dtype, Format], ...] = (
    (torch.float32, torch.float32, "kept"),
    (torch.float32, torch.float32, "none"),
    (torch.float32, torch.bfloat16, "none"),
    (torch.float32, torch.int8, "none"),
    (torch.float32, torch.float8_e4m3fn, "none"),
    (torch.bfloat16, torch.bfloat16, "none"),
    (torch.float32, torch.float32, "int8"),
    (torch.float32, torch.float32, "int4"),
)


def memory_json(card: Card, batch: int, tokens: int, *, has_decoder: bool) -> dict[str, Any]:
    """Return the memory of `batch` texts of `tokens` tokens on the CPU, in bytes, by number format.

    Keys and values have a separate format only if gencli's decoder runs the model.
    """
    is_stored = has_codes(card)
    formats = [
        one
        for one in _FORMATS
        if (has_decoder or (one[0] == one[1] and one[2] == "none"))
        and (one[2] != "kept" or kept_kinds(card.folder))
        and not (is_stored and (one[0] != torch.float32 or one[2] != "none"))
    ]
    needs = [
        need_of(
            card, dtype=dtype, device=_CPU, lanes=batch, tokens=tokens, kv_dtype=kv_dtype, quantize=quantize
        )
        for dtype, kv_dtype, quantize in formats
    ]
    return {
        "batch": batch,
        "context": tokens,
        "libraries": process_memory(),
        "free": free_memory(_CPU),
        "of": [
            {
                "dtype": kv_name(dtype),
                "quantize": quantize,
                "kv_dtype": kv_name(kv_dtype),
                "weights": need.weights,
                "kv": need.kv,
                "step": need.step,
            }
            for (dtype, kv_dtype, quantize), need in zip(formats, needs, strict=True)
        ],
    }


def memory_text(record: Mapping[str, Any]) -> str:
    """Return the table of all parts, with a row for each choice of formats."""
    memory, libraries = record["memory"], record["memory"]["libraries"]
    lines: list[tuple[str, ...]] = [
        ("", "weights", "keys and values", "buffers of a step", "Python and PyTorch", "all")
    ]
    for entry in memory["of"]:
        parts = (entry["weights"], entry["kv"], entry["step"], libraries, _sum(entry, libraries))
        lines.append((_title(entry), *map(size, parts)))
    count = "1 text" if memory["batch"] == 1 else f"{memory['batch']} texts"
    free = f"{size(memory['free'])} are free"
    return f"{record['name']} on the CPU, {count} of {memory['context']} tokens; {free}\n{table(lines)}"


def _sum(entry: Mapping[str, Any], libraries: int | None) -> int | None:
    if entry["kv"] is None:
        return None
    return int(entry["weights"] + entry["kv"] + entry["step"] + (libraries or 0))


def _title(entry: Mapping[str, Any]) -> str:
    if entry["quantize"] == "kept":
        return "4 bits as in the file"
    if entry["quantize"] != "none":
        return f"--quantize {entry['quantize']}"
    is_same = entry["dtype"] == entry["kv_dtype"]
    return str(entry["dtype"] if is_same else f"{entry['dtype']}, --kv-dtype {entry['kv_dtype']}")

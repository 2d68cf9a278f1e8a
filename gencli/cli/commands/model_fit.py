"""How much of a model fits: the tables of `gencli models show --memory` (the CPU) and `--card` (a GPU,
which may be absent).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gencli.cli.render import table
from gencli.helpers import counted, size
from gencli.models.device import free_memory, kv_name, pick_dtype
from gencli.models.files.gguf_header import kept_kinds
from gencli.models.files.model_card import Card, has_codes
from gencli.models.files.model_files import Format
from gencli.models.gpus import memory_named
from gencli.models.model_memory import CONTEXT_BYTES, CardFit, card_fits, need_of, process_memory

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
    records = []
    for dtype, kv_dtype, quantize in _FORMATS:
        is_plain = dtype == kv_dtype and quantize == "none"
        is_missing = quantize == "kept" and not kept_kinds(card.folder, _CPU.type)
        if is_missing or not (has_decoder or is_plain):
            continue
        if is_stored and (dtype != torch.float32 or quantize != "none"):
            continue
        need = need_of(
            card, dtype=dtype, device=_CPU, lanes=batch, tokens=tokens, kv_dtype=kv_dtype, quantize=quantize
        )
        names = {"dtype": kv_name(dtype), "quantize": quantize, "kv_dtype": kv_name(kv_dtype)}
        records.append({**names, "weights": need.weights, "kv": need.kv, "step": need.step})
    head = {"batch": batch, "context": tokens, "libraries": process_memory(), "free": free_memory(_CPU)}
    return {**head, "of": records}


def memory_text(record: Mapping[str, Any]) -> str:
    """Return the table of all parts, with a row for each choice of formats."""
    memory, libraries = record["memory"], record["memory"]["libraries"]
    columns = ("weights", "keys and values", "buffers of a step", "Python and PyTorch", "all")
    lines: list[tuple[str, ...]] = [("", *columns)]
    for entry in memory["of"]:
        weights, kv, step = parts = entry["weights"], entry["kv"], entry["step"]
        total = None if kv is None else weights + kv + step + (libraries or 0)
        title = f"--quantize {entry['quantize']}"
        if entry["quantize"] == "kept":
            title = "4 bits as in the file"
        elif entry["quantize"] == "none":
            kv_dtype = "" if entry["dtype"] == entry["kv_dtype"] else f", --kv-dtype {entry['kv_dtype']}"
            title = f"{entry['dtype']}{kv_dtype}"
        lines.append((title, *map(size, (*parts, libraries, total))))
    count = counted(memory["batch"], "text")
    free = f"{size(memory['free'])} are free"
    return f"{record['name']} on the CPU, {count} of {memory['context']} tokens; {free}\n{table(lines)}"


def card_json(card: Card, name: str, batch: int, tokens: int) -> dict[str, Any]:
    """Return how much of a model fits a GPU given by name or size, in bytes, by number format."""
    memory = memory_named(name)
    return {
        "card": name,
        "card_bytes": memory,
        "cuda": CONTEXT_BYTES,
        "batch": batch,
        "context": tokens,
        "of": [_entry(card, fit) for fit in card_fits(card, memory, batch=batch, tokens=tokens)],
    }


def _entry(card: Card, fit: CardFit) -> dict[str, Any]:
    return {
        "dtype": kv_name(fit.dtype),
        "quantize": "stored" if has_codes(card) else fit.quantize,
        "kv_dtype": kv_name(fit.kv_dtype),
        "flags": _flags(card, fit),
        "weights": fit.need.weights,
        "kv": fit.need.kv,
        "kv_of_one": fit.lane,
        "step": fit.need.step,
        "fits": fit.fits,
        "max_batch": fit.max_batch,
        "max_context": fit.max_context,
    }


def _flags(card: Card, fit: CardFit) -> str:
    # The flags that select the formats on a GPU; "" if they are the defaults.
    chosen, _ = pick_dtype("auto", device=torch.device("cuda", 0), stored=card.weights.stored)
    flags = []
    if fit.quantize == "none" and fit.dtype != chosen:
        flags.append(f"--dtype {kv_name(fit.dtype)}")
    if fit.quantize in ("int8", "int4"):
        flags.append(f"--quantize {fit.quantize}")
    if fit.kv_dtype != fit.dtype:
        flags.append(f"--kv-dtype {kv_name(fit.kv_dtype)}")
    return " ".join(flags)


def card_text(record: Mapping[str, Any]) -> str:
    """Return the table, with a row for each choice of formats, and the command to type."""
    memory = record["memory"]
    count = counted(memory["batch"], "text")
    load = f"{count} of {memory['context']} tokens"
    head = ("weights", "keys, values", "1 text", count, "a step", "in all", "fits", "texts", "tokens")
    rows = [head, *(_row(memory, entry) for entry in memory["of"])]
    fitting = next((entry for entry in memory["of"] if entry["fits"]), None)
    advice = f"Nothing fits for {load}: take fewer or shorter texts, or a smaller model."
    if fitting is not None:
        run = f"gencli run --model {record['name']} --device cuda {fitting['flags']}".rstrip()
        advice = f"Fits for {load}: {run}"
    lines = [
        f"{record['name']} on {memory['card']}, of which programs find {size(memory['card_bytes'])}: {load}",
        f"CUDA and its libraries count as {size(memory['cuda'])}, which is an assumption. At most as many "
        f"`texts` of {memory['context']} tokens fit, or {count} of as many `tokens`.",
        table(rows),
        advice,
    ]
    return "\n".join(lines) + "\n"


def _row(memory: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[str, ...]:
    total = entry["weights"] + (entry["kv"] or 0) + entry["step"] + memory["cuda"]
    shown = {"none": entry["dtype"], "kept": "4 bits as in the file", "stored": "as stored"}
    return (
        shown.get(entry["quantize"], entry["quantize"]) + f" {size(entry['weights'])}",
        entry["kv_dtype"],
        size(entry["kv_of_one"]),
        size(entry["kv"]),
        size(entry["step"]),
        size(total),
        "yes" if entry["fits"] else "no",
        *("?" if entry[key] is None else str(entry[key]) for key in ("max_batch", "max_context")),
    )

"""The table of `gencli models show --card`: how much of a model fits a GPU, which may be absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.cli.terminal.tables import table
from gencli.models.device import kv_name, pick_dtype
from gencli.models.files.model_card import Card, has_codes
from gencli.models.gpus import memory_named
from gencli.models.model_memory import CONTEXT_BYTES, CardFit, card_fits
from gencli.units import size

__all__ = ["card_json", "card_text"]


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
    """Return the flags that select the formats on a GPU; "" if they are the defaults."""
    from torch import device

    chosen, _ = pick_dtype("auto", device=device("cuda", 0), stored=card.weights.stored)
    found = []
    if fit.quantize == "none" and fit.dtype != chosen:
        found.append(f"--dtype {kv_name(fit.dtype)}")
    if fit.quantize in ("int8", "int4"):
        found.append(f"--quantize {fit.quantize}")
    if fit.kv_dtype != fit.dtype:
        found.append(f"--kv-dtype {kv_name(fit.kv_dtype)}")
    return " ".join(found)


def card_text(record: Mapping[str, Any]) -> str:
    """Return the table, with a row for each choice of formats, and the command to type."""
    memory = record["memory"]
    count = "1 text" if memory["batch"] == 1 else f"{memory['batch']} texts"
    what = f"{count} of {memory['context']} tokens"
    head = ("weights", "keys, values", "1 text", count, "a step", "in all", "fits", "texts", "tokens")
    rows = [head, *(_row(memory, entry) for entry in memory["of"])]
    lines = [
        f"{record['name']} on {memory['card']}, of which programs find {size(memory['card_bytes'])}: {what}",
        f"CUDA and its libraries count as {size(memory['cuda'])}, which is an assumption. At most as many "
        f"`texts` of {memory['context']} tokens fit, or {count} of as many `tokens`.",
        table(rows),
        _advice(record["name"], memory["of"], what),
    ]
    return "\n".join(lines)


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
        _number(entry["max_batch"]),
        _number(entry["max_context"]),
    )


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _advice(name: str, entries: list[dict[str, Any]], what: str) -> str:
    found = next((entry for entry in entries if entry["fits"]), None)
    if found is None:
        return f"Nothing fits for {what}: take fewer or shorter texts, or a smaller model."
    return f"Fits for {what}: gencli run --model {name} --device cuda {found['flags']}".rstrip()

"""The rotary parameters of a model in a GGUF file, under the names of config.json."""

from __future__ import annotations

from typing import Any

from gencli.models.gguf.head import GgufHead

__all__ = ["rope_config"]

_THETA = 10_000.0  # of files that do not give it
_YARN = {"attention_factor": "yarn_attn_factor", "beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}


def rope_config(head: GgufHead, arch: str) -> dict[str, Any]:
    """Return the rotary part of the configuration. Raises ModelError for unknown parameters.

    Factors that divide the frequencies one by one (Llama 3 and its successors) have the type `factors`.
    """
    values = _values(head, arch)
    values["rope_theta"] = head.number(f"{arch}.rope.freq_base") or _THETA
    if values["rope_theta"] < 1:
        raise head.wrong(f"{arch}.rope.freq_base", "is less than 1")
    if arch == "gemma3":
        near = {"rope_theta": head.number("gemma3.rope.freq_base_swa") or _THETA}
        return {"rope_parameters": {"full_attention": values, "sliding_attention": near}}
    return {"rope_parameters": values, "partial_rotary_factor": _share(head, arch)}


def _values(head: GgufHead, arch: str) -> dict[str, Any]:
    kind = head.text(f"{arch}.rope.scaling.type") or "none"
    factor = head.number(f"{arch}.rope.scaling.factor")
    context = head.count(f"{arch}.rope.scaling.original_context_length")
    short, long = head.vector("rope_factors_short.weight"), head.vector("rope_factors_long.weight")
    single = head.vector("rope_freqs.weight")
    if short or long:
        kind = "longrope"
    if single and kind != "none":
        raise head.wrong(f"{arch}.rope.scaling.type", f"is {kind[:60]!r} beside the tensor rope_freqs.weight")
    for factors in (short, long, single):
        if factors is not None and (len(factors) != _dims(head, arch) // 2 or min(factors) <= 0):
            raise head.wrong(f"{arch}.rope.dimension_count", "does not fit the tensors of rotary factors")
    if single:
        return {"rope_type": "factors", "factors": single}
    if kind == "longrope" and short and long:
        return {
            "rope_type": "longrope",
            "short_factor": short,
            "long_factor": long,
            "original_max_position_embeddings": context,
            "attention_factor": head.number(f"{arch}.rope.scaling.attn_factor"),
        }
    if kind == "yarn":
        return _yarn(head, arch, factor, context)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor or 1.0}
    if kind != "none":
        raise head.wrong(f"{arch}.rope.scaling.type", f"is {kind[:60]!r}, which gencli does not know")
    return {"rope_type": "default"}


def _yarn(head: GgufHead, arch: str, factor: float | None, context: int | None) -> dict[str, Any]:
    if head.number(f"{arch}.rope.scaling.yarn_ext_factor") not in (None, 1.0):
        raise head.wrong(f"{arch}.rope.scaling.yarn_ext_factor", "is not 1")
    found = {name: head.number(f"{arch}.rope.scaling.{key}") for name, key in _YARN.items()}
    given = {name: value for name, value in found.items() if value is not None}
    return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": context, **given}


def _dims(head: GgufHead, arch: str) -> int:
    """Return the number of values of a head that are rotated."""
    width = _width(head, arch)
    dims = head.count(f"{arch}.rope.dimension_count") or width
    if dims % 2 or not 2 <= dims <= width:
        raise head.wrong(f"{arch}.rope.dimension_count", f"is {dims} for heads of {width} values")
    return dims


def _share(head: GgufHead, arch: str) -> float | None:
    """Return the share of a head that is rotated; None for all of it."""
    dims, width = _dims(head, arch), _width(head, arch)
    # Half a value more, because the share times the width is rounded down.
    return None if dims == width else (dims + 0.5) / width


def _width(head: GgufHead, arch: str) -> int:
    heads = head.count(f"{arch}.attention.head_count") or 1
    return (
        head.count(f"{arch}.attention.key_length") or (head.count(f"{arch}.embedding_length") or 0) // heads
    )

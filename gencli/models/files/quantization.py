"""The format of weights that gencli has quantized, as config.json names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gencli.errors import ModelError

__all__ = [
    "BLOCKS",
    "METHOD",
    "SCALES",
    "VERSION",
    "Format",
    "Quantize",
    "bits_of",
    "is_own",
    "mxfp4_fault",
    "stored_bits",
]

Quantize = Literal["none", "int8", "int4"]
Format = Literal[Quantize, "kept"]  # of weights in memory; kept: a GGUF file's own bits
METHOD, VERSION = "gencli", 1
BLOCKS, SCALES = "_blocks", "_scales"  # behind the name of a weight in MXFP4: its codes and their scales
_MXFP4_KEYS = frozenset(("quant_method", "modules_to_not_convert", "dequantize"))
_BITS: Mapping[str, int] = {"int8": 8, "int4": 4}


def bits_of(quantize: Quantize) -> int | None:
    """Return the bits of weights quantized at loading; None for `none`."""
    return _BITS.get(quantize)


def is_own(config: Mapping[str, Any]) -> bool:
    """Return whether config.json says that gencli has quantized the weights."""
    found = config.get("quantization_config")
    return isinstance(found, Mapping) and found.get("quant_method") == METHOD


def mxfp4_fault(config: Mapping[str, Any]) -> str:
    """Return why the weights are no experts in MXFP4 beside others of 16 bits; "" if they are."""
    found = config.get("quantization_config")
    if not isinstance(found, Mapping) or found.get("quant_method") != "mxfp4":
        return "the weights are quantized by another program"
    strange = sorted(found.keys() - _MXFP4_KEYS)
    return f"the MXFP4 weights have {strange[0]!r}, which the decoder does not know" if strange else ""


def stored_bits(config: Mapping[str, Any]) -> int | None:
    """Return the bits of stored weights, 8 or 4; None if gencli has not quantized them.

    Raises ModelError for a format of another version.
    """
    if not is_own(config):
        return None
    found = config["quantization_config"]
    bits, version = found.get("bits"), found.get("version")
    if type(bits) is not int or bits not in _BITS.values() or version != VERSION:
        raise ModelError(
            f"The weights are quantized to {str(bits)[:20]} bits in version {str(version)[:20]} of the "
            f"format; this gencli reads 8 and 4 bits in version {VERSION}.",
            hint="Quantize the model again with gencli quantize.",
        )
    return bits

"""Number formats of tensors in GGUF files: their numbers in the file, and the sizes of their blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["KINDS", "Kind", "kind_of"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A number format: blocks of `values` numbers take `nbytes` bytes.

    `nbytes` is 0 for a format that is known by name only and cannot be read.
    """

    name: str
    values: int = 1
    nbytes: int = 0

    @property
    def is_quantized(self) -> bool:
        """Whether several numbers share a scale."""
        return self.values > 1


KINDS: Mapping[int, Kind] = {
    0: Kind("F32", 1, 4),
    1: Kind("F16", 1, 2),
    2: Kind("Q4_0", 32, 18),
    3: Kind("Q4_1", 32, 20),
    6: Kind("Q5_0", 32, 22),
    7: Kind("Q5_1", 32, 24),
    8: Kind("Q8_0", 32, 34),
    10: Kind("Q2_K", 256, 84),
    11: Kind("Q3_K", 256, 110),
    12: Kind("Q4_K", 256, 144),
    13: Kind("Q5_K", 256, 176),
    14: Kind("Q6_K", 256, 210),
    30: Kind("BF16", 1, 2),
}
_NAMES = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
}


def kind_of(number: int) -> Kind:
    """Return the format with this number; one without a size if it cannot be read."""
    return KINDS.get(number) or Kind(_NAMES.get(number, f"number {number}"))

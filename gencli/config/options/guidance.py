"""The options of guidance and contrast, for the table in options/run.py. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.config.options.option import Option
from gencli.errors import UsageError
from processors.conversion import Bounds, whole

__all__ = ["CONTRASTS", "GUIDANCE", "GUIDES", "NO_AMATEUR"]

NO_AMATEUR = "none"
GUIDES = ("guidance", "negative")
_STRONGEST = 1e6
CONTRASTS = ("contrast", "contrast_alpha", "contrast_beta")


def _read_layers(given: str | Sequence[int]) -> str | tuple[int, ...]:
    """Return "low", "high", or layers from "2,4,6" or a list. Raises UsageError."""
    if given in ("low", "high"):
        return str(given)
    parts = given.split(",") if isinstance(given, str) else [str(part) for part in given]
    layers = [whole(part.strip()) for part in parts]
    if None in layers or not layers:
        raise UsageError(f"{str(given)[:60]!r} is neither low, high nor layers such as 2,4,6.")
    return tuple(layer for layer in layers if layer is not None)


GUIDANCE: tuple[Option, ...] = (
    Option(("--guidance",), float, "Strength of the prompt (classifier-free guidance): 1 is off, larger "
           "values follow the prompt more, smaller ones less.", "Guidance", 1.0, Bounds(ge=0, le=_STRONGEST),
           metavar="SCALE"),
    Option(("--negative",), str, "The negative prompt of `guidance`; by default the last token of the "
           "prompt.", "Guidance", metavar="TEXT"),
    Option(("--contrast",), str, "Contrastive decoding: prefer tokens that this weaker model finds less "
           "likely. A name or folder of a model with the same vocabulary, or none.", "Guidance", NO_AMATEUR,
           metavar="NAME"),
    Option(("--contrast-alpha",), float, "With `contrast` or `dola`, remove tokens below this times the "
           "probability of the most likely one.", "Guidance", 0.1, Bounds(ge=0, le=1)),
    Option(("--contrast-beta",), float, "Strength of `contrast`; 0 leaves only its cutoff.", "Guidance",
           0.5, Bounds(ge=0, le=_STRONGEST)),
    Option(("--dola",), str, "DoLa: prefer tokens that an early layer of the model finds less likely. low or "
           "high for every second layer of that half, or layers such as 2,4,6; each token takes the one that "
           "differs most.", "Guidance", read=_read_layers, metavar="LAYERS"),
)  # fmt: skip

"""The options of guidance and contrast; a part of the table in options/run.py. Imports nothing heavy."""

from __future__ import annotations

from gencli.config.options.option import Option
from processors.params import Bounds

__all__ = ["CONTRASTS", "GUIDANCE", "GUIDES", "NO_AMATEUR"]

NO_AMATEUR = "none"
GUIDES = ("guidance", "negative")
_STRONGEST = 1e6
CONTRASTS = ("contrast", "contrast_alpha", "contrast_beta")

GUIDANCE: tuple[Option, ...] = (
    Option(("--guidance",), float, "Strength of the prompt (classifier-free guidance): 1 is off, larger "
           "values follow the prompt more, smaller ones less.", "Guidance", 1.0, Bounds(ge=0, le=_STRONGEST),
           metavar="SCALE"),
    Option(("--negative",), str, "The negative prompt of `guidance`; by default the last token of the "
           "prompt.", "Guidance", metavar="TEXT"),
    Option(("--contrast",), str, "Contrastive decoding: prefer tokens that this weaker model finds less "
           "likely. A name or folder of a model with the same vocabulary, or none.", "Guidance", NO_AMATEUR,
           metavar="NAME"),
    Option(("--contrast-alpha",), float, "With `contrast`, remove tokens below this times the probability "
           "of the most likely one.", "Guidance", 0.1, Bounds(ge=0, le=1)),
    Option(("--contrast-beta",), float, "Strength of `contrast`; 0 leaves only its cutoff.", "Guidance",
           0.5, Bounds(ge=0, le=_STRONGEST)),
)  # fmt: skip

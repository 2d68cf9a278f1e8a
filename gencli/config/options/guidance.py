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
    Option(("--guidance",), float, "Follow the prompt so many times as strongly (classifier-free guidance); "
           "1 is off, below 1 follows it less.", "Guidance", 1.0, Bounds(ge=0, le=_STRONGEST),
           metavar="SCALE"),
    Option(("--negative",), str, "What guidance moves away from: another prompt. Without it, the last token "
           "of the prompt.", "Guidance", metavar="TEXT"),
    Option(("--contrast",), str, "Prefer what this weaker model finds less likely: a name or a folder, with "
           "the same vocabulary; or none.", "Guidance", NO_AMATEUR, metavar="NAME"),
    Option(("--contrast-alpha",), float, "With `contrast`, drop tokens below this times the probability of "
           "the most likely one.", "Guidance", 0.1, Bounds(ge=0, le=1)),
    Option(("--contrast-beta",), float, "How strong `contrast` is; 0 leaves only its cutoff.", "Guidance",
           0.5, Bounds(ge=0, le=_STRONGEST)),
)  # fmt: skip

"""The options of beam search and best-of; a part of the table in options/run.py."""

from __future__ import annotations

from gencli.config.options.option import MAX_BATCH, MAX_SAMPLES, Option, Section
from processors.params import Bounds

__all__ = ["SEARCH"]

_HERE: Section = "Search"

SEARCH: tuple[Option, ...] = (
    Option(("--beams",), int, "Search for the most likely text with so many beams instead of drawing; `n` "
           "gives the best of them; 0 is off.", _HERE, 0, Bounds(ge=0, le=MAX_BATCH)),
    Option(("--length-penalty",), float, "Finished texts are compared by the sum of their logprobs divided "
           "by length to this power: above 0 favours long texts, below 0 short ones.", _HERE, 1.0,
           Bounds(ge=-10, le=10)),
    Option(("--early-stopping",), bool, "End the search as soon as there are as many finished texts as "
           "beams, though a better one may come.", _HERE, False),
    Option(("--best-of",), int, "Draw so many samples and keep the one that the model finds the most "
           "likely per token; `n` keeps more; 0 is off.", _HERE, 0,
           Bounds(ge=0, le=MAX_SAMPLES)),
)  # fmt: skip

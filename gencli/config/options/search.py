"""The options of beam search, best-of and contrastive search, for the table in options/run.py."""

from __future__ import annotations

from gencli.config.options.option import MAX_BATCH, MAX_SAMPLES, Option, Section
from processors.conversion import Bounds

__all__ = ["SEARCH"]

_HERE: Section = "Search"

SEARCH: tuple[Option, ...] = (
    Option(("--beams",), int, "Beam search with this many beams instead of sampling; the `n` best texts "
           "are given; 0 is off.", _HERE, 0, Bounds(ge=0, le=MAX_BATCH)),
    Option(("--length-penalty",), float, "The score of a finished text is the sum of its logprobs divided "
           "by its length to this power: above 0 favours long texts, below 0 short ones.", _HERE, 1.0,
           Bounds(ge=-10, le=10)),
    Option(("--early-stopping",), bool, "End the search when there are as many finished texts as "
           "beams, even if a better one is possible.", _HERE, False),
    Option(("--best-of",), int, "Draw this many samples and keep the `n` with the highest mean logprob "
           "per token; 0 is off.", _HERE, 0,
           Bounds(ge=0, le=MAX_SAMPLES)),
    Option(("--contrastive-alpha",), float, "Contrastive search instead of sampling: of the most likely "
           "tokens take one whose state in the model is unlike those before it. Up to 1, the weight of that "
           "unlikeness against the probability; 0 is off.", _HERE, 0.0, Bounds(ge=0, le=1)),
    Option(("--contrastive-k",), int, "Number of tokens among which each step of `contrastive_alpha` "
           "chooses; so many run side by side.", _HERE, 4, Bounds(ge=1, le=MAX_BATCH)),
)  # fmt: skip

"""Scaling, truncation and sampling on a GPU in a few kernels, which `Chooser` launches in place of stages;
and the encoding of a row's masks, biases and penalties in the tables that patch_logits reads.
"""

from __future__ import annotations

from enum import IntEnum


class Edit(IntEnum):
    """Columns of edits [R, E] float64. A penalty of 0 is off; scopes are those of PenaltyParams by index."""

    SIZE = 0  # vocabulary size: ids >= SIZE are masked
    EARLY = 1  # number of output tokens below which ids listed as EARLY are masked
    REPETITION = 2  # three columns: penalty, scope, window
    FREQUENCY = 5  # likewise
    PRESENCE = 8  # likewise
    TURNS = 11  # four columns: the `Turn`s in the order of the chain


NUM_EDITS = 15


class Turn(IntEnum):
    """Kinds of edits applied in the order of the chain: logit bias and penalties. NONE is no edit."""

    NONE = 0
    BIAS = 1
    REPETITION = 2
    FREQUENCY = 3
    PRESENCE = 4


class Listed(IntEnum):
    """Flags of an entry in lists [R, N] int64: bits 32 and up; the lower 32 bits are an id. -1: no entry."""

    NO_REPETITION = 1  # the repetition penalty skips the id
    NO_FREQUENCY = 2  # likewise
    NO_PRESENCE = 4  # likewise
    MASKED = 8  # masked at every position
    FIRST = 16  # masked for the first output token
    EARLY = 32  # masked until the output has Edit.EARLY tokens
    BIASED = 64  # has a logit bias in `values`; at most one such entry per id

"""Codes of the masks, biases and penalties of a chain, as the kernels read them."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["NUM_EDITS", "Edit", "Listed", "Turn"]


class Edit(IntEnum):
    """Columns of edits [R, E] float64. A penalty of 0 is off; scopes are those of PenaltyParams by index."""

    SIZE = 0  # ids from here on are masked
    EARLY = 1  # number of output tokens from which ids that are listed as EARLY are allowed
    REPETITION = 2  # and its scope and window behind it
    FREQUENCY = 5
    PRESENCE = 8
    TURNS = 11  # four columns: which `Turn` comes first, second, ...


NUM_EDITS = 15


class Turn(IntEnum):
    """Edits of logits whose order is that of the chain: logit bias and penalties. NONE is no edit."""

    NONE = 0
    BIAS = 1
    REPETITION = 2
    FREQUENCY = 3
    PRESENCE = 4


class Listed(IntEnum):
    """Bits 32 and up of an entry in the lists [R, N] int64, whose lower bits are an id; -1 for no entry."""

    NO_REPETITION = 1  # the penalty spares the id
    NO_FREQUENCY = 2
    NO_PRESENCE = 4
    MASKED = 8
    FIRST = 16  # masked for the first output token
    EARLY = 32  # masked until there are enough output tokens
    BIASED = 64  # by its value; an id has one such entry at most

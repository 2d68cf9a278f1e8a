"""Phrases for the notes of stages in an explanation: quoted ids and token positions."""

from __future__ import annotations

from collections.abc import Sequence

from processors.base import Vocabulary

__all__ = ["place", "places", "quoted"]

_MOST_PLACES = 4
_LONGEST = 40  # characters of a text, and tokens


def quoted(ids: Sequence[int], vocabulary: Vocabulary | None) -> str:
    """Return the end of these ids' text in quotes, or the ids if there is no tokenizer.

    Control characters are kept; the terminal's writer escapes them.
    """
    last = ids[-_LONGEST:]
    if vocabulary is None:
        return "ids " + " ".join(map(str, last))
    known = vocabulary.token_bytes
    data = b"".join(known[token] for token in last if 0 <= token < len(known))
    text = data.decode("utf-8", "replace")
    is_whole = len(ids) <= _LONGEST and len(text) <= _LONGEST
    return f'"{text}"' if is_whole else f'"...{text[-_LONGEST:]}"'


def places(columns: Sequence[int], prompt: int) -> str:
    """Return the positions of a token: "seen 3x, at 8 of the prompt and 0 5 of the output".

    `columns` index prompt and output together; `prompt` is the prompt's length. Of many positions only the
    last are listed.
    """
    shown = columns[-_MOST_PLACES:]
    begun = [str(column) for column in shown if column < prompt]
    later = [str(column - prompt) for column in shown if column >= prompt]
    parts = [f"{' '.join(at)} of the {where}" for at, where in ((begun, "prompt"), (later, "output")) if at]
    return f"seen {len(columns)}x, {'last ' * (len(shown) < len(columns))}at {' and '.join(parts)}"


def place(column: int, prompt: int) -> str:
    """Return the position of a column of prompt and output: "8 of the prompt"."""
    return f"{column} of the prompt" if column < prompt else f"{column - prompt} of the output"
